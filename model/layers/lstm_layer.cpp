#include "model/layers/lstm_layer.hpp"

#include <fmt/format.h>

namespace lockstep::model {

LstmLayer::LstmLayer(ParameterTable& parameters, ActivationTable& activations, ActivationTable& carried,
                     std::string name, const LstmOptions& options)
    : name_(std::move(name)), options_(options) {
  const auto matrix = [&](const char* what, std::int64_t rows) {
    return parameters.add({.name = name_ + what,
                           .shape = {rows, 4 * options.hidden},
                           .initializer = options.weight_initializer,
                           .fan_in = rows,
                           .fan_out = 4 * options.hidden});
  };
  input_ = matrix("/input", options.inputs);
  recurrent_ = matrix("/recurrent", options.hidden);
  bias_ = parameters.add({.name = name_ + "/bias",
                          .shape = {4 * options.hidden},
                          .initializer = options.bias_initializer,
                          .fan_in = options.inputs,
                          .fan_out = 4 * options.hidden,
                          .decay = Decay::no});
  gates_ = activations.add({.name = "", .rows = options.context, .columns = 4 * options.hidden});
  cells_ = activations.add({.name = "", .rows = options.context + 1, .columns = options.hidden});
  hidden_ = activations.add({.name = name_, .rows = options.context + 1, .columns = options.hidden});
  carried_hidden_ = carried.add({.name = name_ + "/hidden", .columns = options.hidden});
  carried_cell_ = carried.add({.name = name_ + "/cell", .columns = options.hidden});
}

LayerPlan LstmLayer::plan() const {
  const std::int64_t weights = (options_.inputs + options_.hidden) * 4 * options_.hidden;
  const double product = 2.0 * static_cast<double>(options_.context) * static_cast<double>(weights);
  return {.name = name_,
          .description = fmt::format("{} -> {}, {} steps", options_.inputs, options_.hidden, options_.context),
          .parameters = weights + 4 * options_.hidden,
          .activation_elements = (6 * options_.context + 2) * options_.hidden,
          .forward_flops = product,
          .backward_flops = 2 * product};
}

Lstm LstmLayer::shape(const Pass& pass) const noexcept {
  return {.steps = options_.context, .lanes = pass.batch, .hidden = options_.hidden};
}

Tensor LstmLayer::output(const Pass& pass) const {
  return rows_of(pass.at(hidden_), pass.batch, options_.context * pass.batch);
}

Tensor LstmLayer::forward(const Pass& pass, const Tensor& x) const {
  const Tensor gates = pass.at(gates_), cells = pass.at(cells_), hidden = pass.at(hidden_);
  const Tensor carried_hidden = pass.carried(carried_hidden_), carried_cell = pass.carried(carried_cell_);
  const std::int64_t lanes = pass.batch, last = options_.context * lanes;
  pass.backend.cast(carried_hidden, rows_of(hidden, 0, lanes));
  pass.backend.cast(carried_cell, rows_of(cells, 0, lanes));
  pass.backend.linear_forward(x, pass.weight(input_), pass.weight(bias_), Activation::none, gates);
  pass.sequences().lstm_forward(shape(pass), gates, pass.weight(recurrent_), cells, hidden);
  pass.backend.cast(rows_of(hidden, last, lanes), carried_hidden);
  pass.backend.cast(rows_of(cells, last, lanes), carried_cell);
  return output(pass);
}

void LstmLayer::backward(const Pass& pass, const Tensor& x, const Tensor& d_y, Accumulate accumulate, const Tensor& d_x,
                         const Tensor& room) const {
  const Tensor gates = pass.at(gates_);
  pass.sequences().lstm_backward(shape(pass), gates, pass.weight(recurrent_), pass.at(cells_), pass.at(hidden_), d_y,
                                 room, accumulate, pass.gradient(recurrent_));
  pass.backend.linear_backward(x, pass.weight(input_), gates, gates, Activation::none, accumulate,
                               pass.gradient(input_), pass.gradient(bias_), d_x);
}

}  // namespace lockstep::model
