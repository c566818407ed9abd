/// \file
/// The greatest value in each window of each channel. Keeps its position, one byte per output.
#pragma once

#include <string>

#include "model/layers/layer.hpp"

namespace lockstep::model {

class MaxPoolLayer final : public Layer {
 public:
  MaxPoolLayer(ParameterTable& parameters, ActivationTable& activations, std::string name, const ImageShape& in,
               const Sliding& window);

  const ImageShape& out() const noexcept { return shape_.out; }
  LayerPlan plan(const ParameterTable& table) const override;
  Tensor forward(const Pass& pass, const Tensor& x) const override;
  void backward(const Pass& pass, const Tensor& x, const Tensor& d_y, Accumulate accumulate,
                const Tensor& d_x) const override;

 private:
  std::string name_;
  Pool shape_;
  std::size_t chosen_;
};

}  // namespace lockstep::model
