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

LayerPlan LayerNorm::plan() const {
  return {.name = name_,
          .description = "layer norm",
          .parameters = 2 * columns(),
          .activation_elements = rows() * columns()};
}

Tensor LayerNorm::forward(const Pass& pass, const Tensor& x) const {
  const Tensor y = output(pass);
  pass.sequences().layer_norm_forward(x, {}, pass.weight(scale_), pass.weight(shift_), {}, pass.at(mean_),
                                      pass.at(inverse_), y);
  return y;
}

Tensor LayerNorm::forward_sum(const Pass& pass, const Tensor& x, const Tensor& residual) const {
  const Tensor y = output(pass);
  pass.sequences().layer_norm_forward(x, residual, pass.weight(scale_), pass.weight(shift_), x, pass.at(mean_),
                                      pass.at(inverse_), y);
  return y;
}

void LayerNorm::backward(const Pass& pass, const Tensor& x, const Tensor& d_y, Accumulate accumulate,
                         const Tensor& d_x) const {
  pass.sequences().layer_norm_backward(x, pass.weight(scale_), pass.at(mean_), pass.at(inverse_), d_y, {}, accumulate,
                                       pass.gradient(scale_), pass.gradient(shift_), d_x);
}

void LayerNorm::backward_sum(const Pass& pass, const Tensor& x, const Tensor& d_y, Accumulate accumulate,
                             const Tensor& d_stream) const {
  pass.sequences().layer_norm_backward(x, pass.weight(scale_), pass.at(mean_), pass.at(inverse_), d_y, d_stream,
                                       accumulate, pass.gradient(scale_), pass.gradient(shift_), d_stream);
}

}  // namespace lockstep::model
