/// \file
/// "conv": y = act(x * W + b) over images, filters [kernel height, kernel width, in channels, out channels].
#include <stdexcept>

#include <fmt/format.h>

#include "model/graph/operation.hpp"
#include "model/layers/layer_activation.hpp"
#include "model/product_padding.hpp"

namespace lockstep::model {

namespace {

class ConvolutionOperation final : public Operation {
 public:
  explicit ConvolutionOperation(const Call& call)
      : channels_(call.get<std::int64_t>("channels")),
        kernel_(call.get<std::int64_t>("kernel")),
        stride_(call.get<std::int64_t>("stride")),
        activation_(layer_activation(call.get<std::string>("activation"))),
        weight_initializer_(call.initializer("init").value_or(Initializer{.scheme = Initializer::Scheme::he_normal})),
        bias_initializer_(call.initializer("bias-init").value_or(Initializer{})),
        decay_(call.get<bool>("decay") ? Decay::yes : Decay::no) {}

  ValueType declare(Declarations& declarations, std::span<const ValueType> inputs) override {
    const ImageShape in = image_of(inputs[0].shape, "a convolution");
    const Sliding window = same_padding(in, kernel_, stride_);
    shape_ = {.in = in, .out = slide(in, window, channels_), .window = window};
    const std::int64_t area = kernel_ * kernel_;
    declarations.parameter({.name = "weight",
                            .shape = {kernel_, kernel_, in.channels, channels_},
                            .initializer = weight_initializer_,
                            .fan_in = area * in.channels,
                            .fan_out = area * channels_,
                            .decay = decay_});
    declarations.parameter({.name = "bias",
                            .shape = {channels_},
                            .initializer = bias_initializer_,
                            .fan_in = area * in.channels,
                            .fan_out = area * channels_,
                            .decay = Decay::no});
    if (activation_.gelu) declarations.saved({.name = "", .rows = shape_.out.pixels(), .columns = channels_});
    return {.shape = Shape(shape_.out)};
  }

  OperationNeeds needs() const override {
    return {.reads_inputs = 1,
            .reads_output = activation_.fused != Activation::none,
            .overwrites_gradient = !activation_.is_none()};
  }

  LayerPlan plan(const NodeView& node) const override {
    const double product = 2.0 * static_cast<double>(shape_.patch()) * static_cast<double>(shape_.out.elements());
    const bool is_product = shape_.patch() == shape_.in.channels && shape_.out.pixels() == shape_.in.pixels();
    return {.name = node.name,
            .description =
                fmt::format("{} -> {}, {}x{}{}{}", to_string(node.inputs[0].shape), to_string(node.output.shape),
                            kernel_, kernel_, stride_ > 1 ? fmt::format("/{}", stride_) : "", text_behind(activation_)),
            .parameters = shape_.patch() * channels_ + channels_,
            .activation_elements = (activation_.gelu ? 2 : 1) * shape_.out.elements(),
            .forward_flops = product,
            .backward_flops = node.backward_flops(product, kWeight),
            .patch_elements = is_product ? 0 : whole_packs(shape_.patch()) * shape_.out.pixels(),
            .products = {{.rows = shape_.out.pixels(),
                          .inputs = shape_.patch(),
                          .outputs = channels_,
                          .stored_inputs = is_product ? 0 : whole_packs(shape_.patch())}}};
  }

  void forward(const NodePass& node) const override {
    const Tensor y = node.out(), product = activation_.gelu ? node.saved(0) : y;
    node.pass.images().convolution_forward(shape_, node.by_sample(node.in(), shape_.in.elements()),
                                           node.weight(kWeight), node.weight(kBias), activation_.fused,
                                           node.by_sample(product, shape_.out.elements()));
    if (activation_.gelu) node.pass.sequences().gelu_forward(product, {}, y);
  }

  void backward(const NodePass& node) const override {
    const Tensor d_y = node.d_out(), d_x = node.d_in();
    if (activation_.gelu) node.pass.sequences().gelu_backward(node.saved(0), d_y, node.accumulate(), {});
    node.pass.images().convolution_backward(
        shape_,
        {.x = node.by_sample(node.in(), shape_.in.elements()),
         .w = node.weight(kWeight),
         .y = node.by_sample(node.out(), shape_.out.elements()),
         .d_y = node.by_sample(d_y, shape_.out.elements()),
         .d_w = node.gradient(kWeight),
         .d_bias = node.gradient(kBias),
         .d_x = d_x.present() ? node.by_sample(d_x, shape_.in.elements()) : Tensor{}},
        activation_.fused, node.accumulate());
  }

 private:
  static constexpr std::size_t kWeight = 0, kBias = 1;

  std::int64_t channels_, kernel_, stride_;
  Convolution shape_{};
  LayerActivation activation_;
  Initializer weight_initializer_, bias_initializer_;
  Decay decay_;
};

}  // namespace

extern const OperationKind conv_operation;
const OperationKind conv_operation{
    .name = "conv",
    .summary = "a convolution of images, with zeros around them (\"same\")",
    .arguments = {{.name = "channels", .value = 0, .value_name = "N", .help = "of the output", .at_least = 1},
                  {.name = "kernel", .value = 0, .value_name = "N", .help = "height and width", .at_least = 1},
                  {.name = "stride", .value = 1, .value_name = "N", .help = "in both directions", .at_least = 1},
                  call_activation(),
                  {.name = "init", .value = Initializers{}, .value_name = "", .help = "weights", .automatic = true},
                  {.name = "bias-init", .value = Initializers{}, .value_name = "", .help = "biases", .automatic = true},
                  {.name = "decay", .value = true, .value_name = "", .help = "the weights take part in weight decay"}},
    .make = [](const Call& call) -> std::unique_ptr<Operation> {
      return std::make_unique<ConvolutionOperation>(call);
    }};

}  // namespace lockstep::model
