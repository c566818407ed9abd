#include "model/layers/layer_norm.hpp"

namespace lockstep::model {

LayerNorm::LayerNorm(ParameterTable& parameters, ActivationTable& activations, std::string name, std::int64_t rows,
                     std::int64_t width)
    : Layer(activations, name, rows, width), name_(std::move(name)) {
  const auto declare = [&](const char* what, double value) {
    return parameters.add({.name = name_ + what,
                           .shape = {width},
                           .initializer = {Initializer::Scheme::constant, value},
                           .decay = Decay::no});
  };
  scale_ = declare("/scale", 1);
  shift_ = declare("/shift", 0);
  mean_ = activations.add({.name = "", .rows = rows, .columns = 1, .holds = Holds::statistics});
  inverse_ = activations.add({.name = "", .rows = rows, .columns = 1, .holds = Holds::statistics});
  set_first_weight(scale_);
}

LayerPlan LayerNorm::plan(const ParameterTable&) const {
  return {.name = name_,
          .description = "layer norm",
          .parameters = 2 * columns(),
          .activation_elements = rows() * columns()};
}

Tensor LayerNorm::forward(const Pass& pass, const Tensor& x) const {
  const Tensor y = output(pass);
  pass.sequences().layer_norm_forward({.x = x,
                                       .scale = pass.weight(scale_),
                                       .shift = pass.weight(shift_),
                                       .mean = pass.at(mean_),
                                       .inverse = pass.at(inverse_),
                                       .y = y});
  return y;
}

Tensor LayerNorm::forward_sum(const Pass& pass, const Tensor& x, const Tensor& residual) const {
  const Tensor y = output(pass);
  pass.sequences().layer_norm_forward({.x = x,
                                       .residual = residual,
                                       .scale = pass.weight(scale_),
                                       .shift = pass.weight(shift_),
                                       .sum = x,
                                       .mean = pass.at(mean_),
                                       .inverse = pass.at(inverse_),
                                       .y = y});
  return y;
}

void LayerNorm::backward(const Pass& pass, const Tensor& x, const Tensor& d_y, Accumulate accumulate,
                         const Tensor& d_x) const {
  pass.sequences().layer_norm_backward({.x = x,
                                        .scale = pass.weight(scale_),
                                        .mean = pass.at(mean_),
                                        .inverse = pass.at(inverse_),
                                        .d_y = d_y,
                                        .d_scale = pass.gradient(scale_),
                                        .d_shift = pass.gradient(shift_),
                                        .d_x = d_x},
                                       accumulate);
}

void LayerNorm::backward_sum(const Pass& pass, const Tensor& x, const Tensor& d_y, Accumulate accumulate,
                             const Tensor& d_stream) const {
  pass.sequences().layer_norm_backward({.x = x,
                                        .scale = pass.weight(scale_),
                                        .mean = pass.at(mean_),
                                        .inverse = pass.at(inverse_),
                                        .d_y = d_y,
                                        .d_residual = d_stream,
                                        .d_scale = pass.gradient(scale_),
                                        .d_shift = pass.gradient(shift_),
                                        .d_x = d_stream},
                                       accumulate);
}

}  // namespace lockstep::model
