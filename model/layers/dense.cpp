#include "model/layers/dense.hpp"

#include <fmt/format.h>

namespace lockstep::model {

Tensor slice_of(const Tensor& arena, const Parameter& parameter) {
  Tensor slice = arena;
  slice.data = static_cast<std::byte*>(arena.data) + parameter.offset * size_of(arena.type);
  slice.rows = parameter.shape.size() > 1 ? parameter.shape.front() : 1;
  slice.columns = static_cast<std::int64_t>(parameter.count) / slice.rows;
  return slice;
}

Dense::Dense(ParameterTable& table, std::string name, const DenseOptions& options)
    : name_(std::move(name)),
      options_(options),
      weight_(table.add({.name = name_ + "/weight",
                         .shape = {options.inputs, options.outputs},
                         .initializer = options.weight_initializer,
                         .fan_in = options.inputs,
                         .fan_out = options.outputs,
                         .decay = Decay::yes})),
      bias_(table.add({.name = name_ + "/bias",
                       .shape = {options.outputs},
                       .initializer = options.bias_initializer,
                       .fan_in = options.inputs,
                       .fan_out = options.outputs,
                       .decay = Decay::no})) {}

LayerPlan Dense::plan() const {
  const double product = 2.0 * static_cast<double>(options_.inputs) * static_cast<double>(options_.outputs);
  return {
      .name = name_,
      .description = fmt::format(
          "{} -> {}{}", options_.inputs, options_.outputs,
          options_.activation == Activation::none ? std::string() : fmt::format(", {}", name_of(options_.activation))),
      .parameters = options_.inputs * options_.outputs + options_.outputs,
      .activation_elements = options_.outputs,
      .forward_flops = product,
      .backward_flops = options_.first ? product : 2 * product};
}

void Dense::forward(Backend& backend, const ParameterTable& table, const Tensor& parameters, const Tensor& x,
                    const Tensor& y) const {
  backend.linear_forward(x, slice_of(parameters, table[weight_]), slice_of(parameters, table[bias_]),
                         options_.activation, y);
}

std::size_t Dense::backward(Backend& backend, const ParameterTable& table, const NetworkMemory& memory, const Tensor& x,
                            const Tensor& y, const Tensor& d_y, Accumulate accumulate, const Tensor& d_x) const {
  const Tensor& gradients = memory.gradients;
  backend.linear_backward(x, slice_of(memory.parameters, table[weight_]), y, d_y, options_.activation, accumulate,
                          slice_of(gradients, table[weight_]), slice_of(gradients, table[bias_]), d_x);
  return table.slice_end(weight_);
}

}  // namespace lockstep::model
