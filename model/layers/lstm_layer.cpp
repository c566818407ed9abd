#include "model/layers/lstm_layer.hpp"

#include <fmt/format.h>

namespace lockstep::model {

LstmLayer::LstmLayer(ParameterTable& parameters, ActivationTable& activations, ActivationTable& recurrent_state,
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
  state_hidden_ = recurrent_state.add({.name = name_ + "/hidden", .columns = options.hidden});
  state_cell_ = recurrent_state.add({.name = name_ + "/cell", .columns = options.hidden});
}

LayerPlan LstmLayer::plan(const ParameterTable& table) const {
  const std::int64_t weights = (options_.inputs + options_.hidden) * 4 * options_.hidden;
  const double product = 2.0 * static_cast<double>(options_.context) * static_cast<double>(weights);
  const double to_gates = product * static_cast<double>(options_.inputs) /
                          static_cast<double>(options_.inputs + options_.hidden),
               through_time = product - to_gates;
  return {.name = name_,
          .description = fmt::format("{} -> {}, {} steps", options_.inputs, options_.hidden, options_.context),
          .parameters = weights + 4 * options_.hidden,
          .activation_elements = (6 * options_.context + 2) * options_.hidden,
          .forward_flops = product,
          .backward_flops = backward_flops(table, to_gates, input_) +
                            (table.trains_below(bias_ + 1) ? through_time : 0) +
                            (table[recurrent_].frozen ? 0 : through_time),
          .products = {{.rows = options_.context, .inputs = options_.inputs, .outputs = 4 * options_.hidden},
                       {.rows = options_.context, .inputs = options_.hidden, .outputs = 4 * options_.hidden}}};
}

Lstm LstmLayer::shape(const Pass& pass) const noexcept {
  return {.steps = options_.context, .sequences = pass.batch, .hidden = options_.hidden};
}

Tensor LstmLayer::output(const Pass& pass) const {
  return pass.at(hidden_).row_range(pass.batch, options_.context * pass.batch);
}

Tensor LstmLayer::forward(const Pass& pass, const Tensor& x) const {
  const Tensor gates = pass.at(gates_), cells = pass.at(cells_), hidden = pass.at(hidden_);
  const Tensor state_hidden = pass.recurrent_state(state_hidden_), state_cell = pass.recurrent_state(state_cell_);
  const std::int64_t sequences = pass.batch, last = options_.context * sequences;
  pass.backend.cast(state_hidden, hidden.row_range(0, sequences));
  pass.backend.cast(state_cell, cells.row_range(0, sequences));
  pass.backend.linear_forward(x, pass.weight(input_), pass.weight(bias_), Activation::none, gates);
  pass.sequences().lstm_forward(
      shape(pass), {.gates = gates, .recurrent = pass.weight(recurrent_), .cells = cells, .hidden = hidden});
  pass.backend.cast(hidden.row_range(last, sequences), state_hidden);
  pass.backend.cast(cells.row_range(last, sequences), state_cell);
  return output(pass);
}

void LstmLayer::backward(const Pass& pass, const Tensor& x, const Tensor& d_y, Accumulate accumulate, const Tensor& d_x,
                         const Tensor& workspace) const {
  const Tensor gates = pass.at(gates_);
  pass.sequences().lstm_backward(shape(pass),
                                 {.gates = gates,
                                  .recurrent = pass.weight(recurrent_),
                                  .cells = pass.at(cells_),
                                  .hidden = pass.at(hidden_),
                                  .d_hidden = d_y,
                                  .d_cell = workspace,
                                  .d_recurrent = pass.gradient(recurrent_)},
                                 accumulate);
  pass.backend.linear_backward({.x = x,
                                .w = pass.weight(input_),
                                .y = gates,
                                .d_y = gates,
                                .d_w = pass.gradient(input_),
                                .d_bias = pass.gradient(bias_),
                                .d_x = d_x},
                               Activation::none, accumulate);
}

}  // namespace lockstep::model
