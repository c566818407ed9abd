/// \file
/// The fully connected layer: y = act(x W + b), x [rows, inputs], W [inputs, outputs], b [outputs], y [rows, outputs].
#pragma once

#include <cstdint>
#include <string>

#include "model/layers/layer.hpp"
#include "model/layers/layer_activation.hpp"

namespace lockstep::model {

struct DenseOptions {
  std::int64_t rows = 1;  ///< per sample
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  LayerActivation activation = {};
  Initializer weight_initializer = {};
  Initializer bias_initializer = {};
  Decay decay = Decay::yes;  ///< decay of the weight; the bias is never decayed
  /// The first layer of a network: the gradient of its input is not needed.
  bool first = false;
  /// The last layer, without an activation: the loss reads its output, whose rows have padded_outputs() columns in
  /// bfloat16.
  bool last = false;
};

class Dense final : public Layer {
 public:
  /// Declares NAME/weight [inputs, outputs] and NAME/bias [outputs].
  Dense(ParameterTable& parameters, ActivationTable& activations, std::string name, const DenseOptions& options);

  LayerPlan plan(const ParameterTable& table) const override;
  Tensor forward(const Pass& pass, const Tensor& x) const override;
  void backward(const Pass& pass, const Tensor& x, const Tensor& d_y, Accumulate accumulate,
                const Tensor& d_x) const override;

 private:
  std::string name_;
  DenseOptions options_;
  std::size_t before_gelu_ = 0;  ///< activation: input of GELU, if there is one
  std::size_t weight_;
  std::size_t bias_;
};

}  // namespace lockstep::model
