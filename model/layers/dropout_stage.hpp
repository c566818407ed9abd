/// \file
/// A dropout between two layers of a chain: in training y is x with some elements dropped, else it is x itself.
#pragma once

#include <string>

#include "model/layers/dropout_layer.hpp"
#include "model/layers/layer.hpp"

namespace lockstep::model {

class DropoutStage final : public Layer {
 public:
  DropoutStage(ParameterTable& parameters, ActivationTable& activations, std::string name, std::int64_t columns,
               const Dropout& rule);

  LayerPlan plan(const ParameterTable& table) const override;
  Tensor forward(const Pass& pass, const Tensor& x) const override;
  void backward(const Pass& pass, const Tensor& x, const Tensor& d_y, Accumulate accumulate,
                const Tensor& d_x) const override;

 private:
  std::string name_;
  float rate_;
  DropoutLayer dropout_;
};

}  // namespace lockstep::model
