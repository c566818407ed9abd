#include "model/layers/dropout_stage.hpp"

#include <fmt/format.h>

namespace lockstep::model {

DropoutStage::DropoutStage(ParameterTable&, ActivationTable& activations, std::string name, std::int64_t columns,
                           const Dropout& rule)
    : Layer(activations, name, 1, columns), name_(std::move(name)), rate_(rule.rate), dropout_(rule) {}

LayerPlan DropoutStage::plan(const ParameterTable&) const {
  return {.name = name_, .description = fmt::format("drops {:g}", rate_), .activation_elements = columns()};
}

Tensor DropoutStage::forward(const Pass& pass, const Tensor& x) const {
  if (!pass.training) return x;
  const Tensor y = output(pass);
  pass.sequences().dropout(x, pass.keys, dropout_.rule(pass), y);
  return y;
}

void DropoutStage::backward(const Pass& pass, const Tensor&, const Tensor& d_y, Accumulate, const Tensor& d_x) const {
  if (d_x.present()) pass.sequences().dropout(d_y, pass.keys, dropout_.rule(pass), d_x);
}

}  // namespace lockstep::model
