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
  d_cell_ = activations.add({.name = "", .rows = 1, .columns = options.hidden});
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

Lstm LstmLayer::shape(const Pass& pass, const Steps& steps, Queue queue) const noexcept {
  return {.steps = steps.count, .sequences = pass.batch, .hidden = options_.hidden, .queue = queue};
}

Tensor LstmLayer::output(const Pass& pass) const {
  return pass.at(hidden_).row_range(pass.batch, options_.context * pass.batch);
}

Tensor LstmLayer::forward(const Pass& pass, const Tensor& x) const {
  begin_window(pass);
  input_product(pass, x, all());
  recur(pass, all(), Queue::main);
  end_window(pass);
  return output(pass);
}

void LstmLayer::begin_window(const Pass& pass) const {
  pass.backend.cast(pass.recurrent_state(state_hidden_), pass.at(hidden_).row_range(0, pass.batch));
  pass.backend.cast(pass.recurrent_state(state_cell_), pass.at(cells_).row_range(0, pass.batch));
}

void LstmLayer::input_product(const Pass& pass, const Tensor& x, const Steps& steps) const {
  pass.backend.linear_forward(rows_of(steps, pass, x), pass.weight(input_), pass.weight(bias_), Activation::none,
                              rows_of(steps, pass, pass.at(gates_)));
}

void LstmLayer::recur(const Pass& pass, const Steps& steps, Queue queue) const {
  const Steps states{steps.first, steps.count + 1};
  pass.sequences().lstm_forward(shape(pass, steps, queue), {.gates = rows_of(steps, pass, pass.at(gates_)),
                                                            .recurrent = pass.weight(recurrent_),
                                                            .cells = rows_of(states, pass, pass.at(cells_)),
                                                            .hidden = rows_of(states, pass, pass.at(hidden_))});
}

void LstmLayer::end_window(const Pass& pass) const {
  const Steps last{options_.context, 1};
  pass.backend.cast(rows_of(last, pass, pass.at(hidden_)), pass.recurrent_state(state_hidden_));
  pass.backend.cast(rows_of(last, pass, pass.at(cells_)), pass.recurrent_state(state_cell_));
}

void LstmLayer::backward(const Pass& pass, const Tensor& x, const Tensor& d_y, Accumulate accumulate,
                         const Tensor& d_x) const {
  recur_backward(pass, d_y, all(), Queue::main);
  parameter_gradients(pass, x, accumulate, d_x);
}

void LstmLayer::recur_backward(const Pass& pass, const Tensor& d_y, const Steps& steps, Queue queue) const {
  const Steps states{steps.first, steps.count + 1}, after{steps.first + steps.count, 1};
  const Tensor gates = pass.at(gates_);
  pass.sequences().lstm_backward(
      shape(pass, steps, queue),
      {.gates = rows_of(steps, pass, gates),
       .recurrent = pass.weight(recurrent_),
       .cells = rows_of(states, pass, pass.at(cells_)),
       .d_hidden = rows_of(steps, pass, d_y),
       .d_cell = pass.at(d_cell_),
       .gates_after = after.first < options_.context ? rows_of(after, pass, gates) : Tensor{}});
}

void LstmLayer::input_gradient(const Pass& pass, const Tensor& x, const Steps& steps, const Tensor& d_x) const {
  pass.backend.linear_backward({.x = rows_of(steps, pass, x),
                                .w = pass.weight(input_),
                                .d_y = rows_of(steps, pass, pass.at(gates_)),
                                .d_x = rows_of(steps, pass, d_x)},
                               Activation::none, Accumulate::no);
}

void LstmLayer::parameter_gradients(const Pass& pass, const Tensor& x, Accumulate accumulate, const Tensor& d_x) const {
  const Tensor gates = pass.at(gates_);
  pass.backend.linear_backward({.x = rows_of(all(), pass, pass.at(hidden_)),  // the states before each step
                                .w = pass.weight(recurrent_),
                                .d_y = gates,
                                .d_w = pass.gradient(recurrent_)},
                               Activation::none, accumulate);
  pass.backend.linear_backward({.x = x,
                                .w = pass.weight(input_),
                                .d_y = gates,
                                .d_w = pass.gradient(input_),
                                .d_bias = pass.gradient(bias_),
                                .d_x = d_x},
                               Activation::none, accumulate);
}

}  // namespace lockstep::model
