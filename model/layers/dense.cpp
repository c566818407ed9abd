#include "model/layers/dense.hpp"

#include <cassert>

#include <fmt/format.h>

#include "model/product_padding.hpp"

namespace lockstep::model {

Dense::Dense(ParameterTable& parameters, ActivationTable& activations, std::string name, const DenseOptions& options)
    : Layer(activations, name, options.rows, options.outputs, options.last ? padded_outputs(options.outputs) : 0),
      name_(std::move(name)),
      options_(options),
      weight_(parameters.add({.name = name_ + "/weight",
                              .shape = {options.inputs, options.outputs},
                              .initializer = options.weight_initializer,
                              .fan_in = options.inputs,
                              .fan_out = options.outputs,
                              .decay = options.decay})),
      bias_(parameters.add({.name = name_ + "/bias",
                            .shape = {options.outputs},
                            .initializer = options.bias_initializer,
                            .fan_in = options.inputs,
                            .fan_out = options.outputs,
                            .decay = Decay::no,
                            .padding = options.last ? padded_outputs(options.outputs) - options.outputs : 0})) {
  assert(!options.last || options.activation.is_none());
  set_first_weight(weight_);
  if (options.activation.gelu) {
    before_gelu_ = activations.add({.name = "", .rows = options.rows, .columns = options.outputs});
  }
}

LayerPlan Dense::plan(const ParameterTable& table) const {
  const double product = 2.0 * static_cast<double>(options_.rows) * static_cast<double>(options_.inputs) *
                         static_cast<double>(options_.outputs);
  return {.name = name_,
          .description = fmt::format(
              "{} -> {}{}", options_.inputs, options_.outputs,
              options_.activation.is_none() ? std::string() : fmt::format(", {}", name_of(options_.activation))),
          .parameters = options_.inputs * options_.outputs + options_.outputs,
          .activation_elements = (options_.activation.gelu ? 2 : 1) * options_.rows * options_.outputs,
          .forward_flops = product,
          .backward_flops = backward_flops(table, product, weight_, options_.first ? Input::given : Input::computed),
          .products = {{.rows = options_.rows,
                        .inputs = options_.inputs,
                        .outputs = options_.outputs,
                        .stored_outputs = options_.last ? padded_outputs(options_.outputs) : 0}}};
}

Tensor Dense::forward(const Pass& pass, const Tensor& x) const {
  const Tensor y = output(pass);
  const Tensor product = options_.activation.gelu ? pass.at(before_gelu_) : y;
  pass.backend.linear_forward(x, pass.weight(weight_), pass.vector(bias_, product.columns), options_.activation.fused,
                              product);
  if (options_.activation.gelu) pass.sequences().gelu_forward(product, {}, y);
  return y;
}

void Dense::backward(const Pass& pass, const Tensor& x, const Tensor& d_y, Accumulate accumulate,
                     const Tensor& d_x) const {
  const Tensor d_w = pass.gradient(weight_), d_bias = pass.vector_gradient(bias_, d_y.columns);
  if (!d_w.present() && !d_bias.present() && !d_x.present()) return;
  if (options_.activation.gelu) pass.sequences().gelu_backward(pass.at(before_gelu_), d_y, accumulate, {});
  pass.backend.linear_backward(
      {.x = x, .w = pass.weight(weight_), .y = output(pass), .d_y = d_y, .d_w = d_w, .d_bias = d_bias, .d_x = d_x},
      options_.activation.fused, accumulate);
}

}  // namespace lockstep::model
