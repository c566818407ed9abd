/// \file
/// The reference operations on images: float64, a simple loop each.
#pragma once

#include "model/image_operations.hpp"

namespace lockstep::model {

class ReferenceImages final : public ImageOperations {
 public:
  ReferenceImages() : ImageOperations({ElementType::float64, ElementType::float64}) {}
  bool recomputes_relu() const noexcept override { return true; }
  bool adds_image_gradient(const Convolution&) const noexcept override { return true; }

 private:
  LOCKSTEP_IMAGE_OPERATIONS(void, override)
  void do_add_image_gradient(const Convolution& shape, const Tensor& w, const Tensor& d_y, const Tensor& d_x) override;
};

}  // namespace lockstep::model
