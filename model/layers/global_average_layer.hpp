/// \file
/// The mean of each channel over all pixels.
#pragma once

#include <string>

#include "model/layers/layer.hpp"

namespace lockstep::model {

class GlobalAverageLayer final : public Layer {
 public:
  GlobalAverageLayer(ParameterTable& parameters, ActivationTable& activations, std::string name, const ImageShape& in);

  LayerPlan plan(const ParameterTable& table) const override;
  Tensor forward(const Pass& pass, const Tensor& x) const override;
  void backward(const Pass& pass, const Tensor& x, const Tensor& d_y, Accumulate accumulate,
                const Tensor& d_x) const override;

 private:
  std::string name_;
  ImageShape in_;
};

}  // namespace lockstep::model
