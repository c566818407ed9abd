/// \file
/// Operations that compute nothing, to test the checks of operands. Compute and master type differ, as on a GPU.
#pragma once

#include "model/image_operations.hpp"
#include "model/sequence_operations.hpp"

namespace lockstep::model::test {

inline constexpr OperationTypes kIdleTypes{.compute = ElementType::float32, .master = ElementType::float64};

class IdleImages final : public ImageOperations {
 public:
  IdleImages() : ImageOperations(kIdleTypes) {}
  /// True for some shapes: all except products.
  bool adds_image_gradient(const Convolution& shape) const noexcept override { return shape.window.height.size > 1; }

 private:
  LOCKSTEP_IMAGE_OPERATIONS(void, override{})
  void do_add_image_gradient(const Convolution&, const Tensor&, const Tensor&, const Tensor&) override {}
};

class IdleSequences final : public SequenceOperations {
 public:
  IdleSequences() : SequenceOperations(kIdleTypes) {}

 private:
  LOCKSTEP_SEQUENCE_OPERATIONS(void, override{})
};

}  // namespace lockstep::model::test
