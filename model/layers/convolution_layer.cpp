#include "model/layers/convolution_layer.hpp"

#include <fmt/format.h>

namespace lockstep::model {

std::string describe(const ImageShape& shape) {
  return fmt::format("{}x{}x{}", shape.height, shape.width, shape.channels);
}

ConvolutionLayer::ConvolutionLayer(ParameterTable& parameters, ActivationTable& activations, std::string name,
                                   const ConvolutionOptions& options)
    : Layer(activations, name, 1, slide(options.in, options.window, options.channels).elements()),
      name_(std::move(name)),
      options_(options),
      shape_{.in = options.in, .out = slide(options.in, options.window, options.channels), .window = options.window} {
  const std::int64_t area = options.window.height * options.window.width;
  weight_ =
      parameters.add({.name = name_ + "/weight",
                      .shape = {options.window.height, options.window.width, options.in.channels, options.channels},
                      .initializer = options.weight_initializer,
                      .fan_in = area * options.in.channels,
                      .fan_out = area * options.channels,
                      .decay = options.decay});
  if (options.bias) {
    bias_ = parameters.add({.name = name_ + "/bias",
                            .shape = {options.channels},
                            .initializer = options.bias_initializer,
                            .fan_in = area * options.in.channels,
                            .fan_out = area * options.channels,
                            .decay = Decay::no});
  }
  set_first_weight(weight_);
  if (options.activation.gelu) {
    before_gelu_ = activations.add({.name = "", .rows = 1, .columns = shape_.out.elements()});
  }
}

LayerPlan ConvolutionLayer::plan(const ParameterTable& table) const {
  const double product = 2.0 * static_cast<double>(shape_.patch()) * static_cast<double>(shape_.out.elements());
  std::string description = fmt::format("{} -> {}, {}x{}", describe(shape_.in), describe(shape_.out),
                                        options_.window.height, options_.window.width);
  if (options_.window.stride > 1) description += fmt::format("/{}", options_.window.stride);
  if (!options_.activation.is_none()) description += fmt::format(", {}", name_of(options_.activation));
  const bool is_product = shape_.patch() == shape_.in.channels && shape_.out.pixels() == shape_.in.pixels();
  return {.name = name_,
          .description = std::move(description),
          .parameters = shape_.patch() * options_.channels + (options_.bias ? options_.channels : 0),
          .activation_elements = (options_.activation.gelu ? 2 : 1) * shape_.out.elements(),
          .forward_flops = product,
          .backward_flops = backward_flops(table, product, weight_, options_.first ? Input::given : Input::computed),
          .patch_elements = is_product ? 0 : whole_packs(shape_.patch()) * shape_.out.pixels(),
          .products = {{.rows = shape_.out.pixels(),
                        .inputs = shape_.patch(),
                        .outputs = options_.channels,
                        .stored_inputs = is_product ? 0 : whole_packs(shape_.patch())}}};
}

Tensor ConvolutionLayer::forward(const Pass& pass, const Tensor& x) const {
  const Tensor y = output(pass);
  const Tensor product = options_.activation.gelu ? pass.at(before_gelu_) : y;
  pass.images().convolution_forward(shape_, x, pass.weight(weight_), options_.bias ? pass.weight(bias_) : Tensor{},
                                    options_.activation.fused, product);
  if (options_.activation.gelu) pass.sequences().gelu_forward(product, {}, y);
  return y;
}

void ConvolutionLayer::backward(const Pass& pass, const Tensor& x, const Tensor& d_y, Accumulate accumulate,
                                const Tensor& d_x) const {
  const Tensor d_w = pass.gradient(weight_), d_bias = options_.bias ? pass.gradient(bias_) : Tensor{};
  if (!d_w.present() && !d_bias.present() && !d_x.present()) return;
  if (options_.activation.gelu) pass.sequences().gelu_backward(pass.at(before_gelu_), d_y, accumulate, {});
  pass.images().convolution_backward(
      shape_,
      {.x = x, .w = pass.weight(weight_), .y = output(pass), .d_y = d_y, .d_w = d_w, .d_bias = d_bias, .d_x = d_x},
      options_.activation.fused, accumulate);
}

bool ConvolutionLayer::adds_gradient(const Pass& pass) const {
  return options_.activation.is_none() && pass.images().adds_image_gradient(shape_);
}

void ConvolutionLayer::backward_adding(const Pass& pass, const Tensor& x, const Tensor& d_y, Accumulate accumulate,
                                       const Tensor& d_x) const {
  backward(pass, x, d_y, accumulate, {});
  pass.images().add_image_gradient(shape_, pass.weight(weight_), d_y, d_x);
}

}  // namespace lockstep::model
