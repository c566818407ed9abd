/// \file
/// "conv": y = act(x * W + b) over images, filters [kernel height, kernel width, in channels, out channels].
#include <optional>

#include <fmt/format.h>

#include "model/graph/layer_activation.hpp"
#include "model/graph/operation.hpp"
#include "model/product_padding.hpp"

namespace lockstep::model {

namespace {

class ConvolutionOperation final : public Operation {
 public:
  explicit ConvolutionOperation(const Call& call)
      : channels_(call.get<std::int64_t>("channels")),
        kernel_(call.get<std::int64_t>("kernel")),
        stride_(call.get<std::int64_t>("stride")),
        padding_(call.find<std::int64_t>("padding")),
        has_bias_(call.get<bool>("bias")),
        activation_(layer_activation(call.get<std::string>("activation"))),
        weight_initializer_(call.initializer("init").value_or(Initializer{.scheme = Initializer::Scheme::he_normal})),
        bias_initializer_(call.initializer("bias-init").value_or(Initializer{})),
        decay_(call.get<bool>("decay") ? Decay::yes : Decay::no) {}

  ValueType declare(Declarations& declarations, std::span<const ValueType> inputs) override {
    const ImageShape in = image_of(inputs[0].shape, "a convolution");
    const Sliding window = padding_ ? even_padding(kernel_, stride_, *padding_) : same_padding(in, kernel_, stride_);
    shape_ = {.in = in, .out = slide(in, window, channels_), .window = window};
    const std::int64_t area = kernel_ * kernel_;
    declarations.parameter({.name = "weight",
                            .shape = {kernel_, kernel_, in.channels, channels_},
                            .initializer = weight_initializer_,
                            .fan_in = area * in.channels,
                            .fan_out = area * channels_,
                            .decay = decay_});
    if (has_bias_) {
      declarations.parameter({.name = "bias",
                              .shape = {channels_},
                              .initializer = bias_initializer_,
                              .fan_in = area * in.channels,
                              .fan_out = area * channels_,
                              .decay = Decay::no});
    }
    if (activation_.gelu) declarations.saved({.name = "", .rows = shape_.out.pixels(), .columns = channels_});
    return {.shape = Shape(shape_.out)};
  }

  OperationNeeds needs() const override {
    return {.reads_inputs = 1,
            .reads_output = activation_.fused != Activation::none,
            .overwrites_gradient = !activation_.is_none(),
            .adds = activation_.is_none() ? 1u : 0u};
  }

  LayerPlan plan(const NodeView& node) const override {
    const double product = 2.0 * static_cast<double>(shape_.patch()) * static_cast<double>(shape_.out.elements());
    const bool is_product = shape_.patch() == shape_.in.channels && shape_.out.pixels() == shape_.in.pixels();
    return {.name = node.name,
            .description =
                fmt::format("{} -> {}, {}x{}{}{}", to_string(node.inputs[0].shape), to_string(node.output.shape),
                            kernel_, kernel_, stride_ > 1 ? fmt::format("/{}", stride_) : "", text_behind(activation_)),
            .parameters = shape_.patch() * channels_ + (has_bias_ ? channels_ : 0),
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
                                           node.weight(kWeight), has_bias_ ? node.weight(kBias) : Tensor{},
                                           activation_.fused, node.by_sample(product, shape_.out.elements()));
    if (activation_.gelu) node.pass.sequences().gelu_forward(product, {}, y);
  }

  void backward(const NodePass& node) const override {
    const auto by_sample = [&](const Tensor& tensor, const ImageShape& shape) {
      return tensor.present() ? node.by_sample(tensor, shape.elements()) : Tensor{};
    };
    ImageOperations& images = node.pass.images();
    const Tensor d_y = by_sample(node.d_out(), shape_.out), sum = by_sample(node.sum_of(), shape_.in);
    const bool adds = sum.present() && images.adds_image_gradient(shape_);
    const Tensor d_x = adds ? Tensor{} : by_sample(node.d_in(), shape_.in), d_w = node.gradient(kWeight),
                 d_bias = has_bias_ ? node.gradient(kBias) : Tensor{};
    if (activation_.gelu) node.pass.sequences().gelu_backward(node.saved(0), node.d_out(), node.accumulate(), {});
    if (d_w.present() || d_bias.present() || d_x.present()) {
      images.convolution_backward(shape_,
                                  {.x = node.by_sample(node.in(), shape_.in.elements()),
                                   .w = node.weight(kWeight),
                                   .y = by_sample(node.out(), shape_.out),
                                   .d_y = d_y,
                                   .d_w = d_w,
                                   .d_bias = d_bias,
                                   .d_x = d_x},
                                  activation_.fused, node.accumulate());
    }
    if (adds) {
      images.add_image_gradient(shape_, node.weight(kWeight), d_y, sum);
    } else if (sum.present()) {
      node.pass.backend.add(d_x, sum);
    }
  }

 private:
  static constexpr std::size_t kWeight = 0, kBias = 1;

  std::int64_t channels_, kernel_, stride_;
  std::optional<std::int64_t> padding_;  ///< on all sides; absent: as much as keeps the size, but for the stride
  bool has_bias_;
  Convolution shape_{};
  LayerActivation activation_;
  Initializer weight_initializer_, bias_initializer_;
  Decay decay_;
};

}  // namespace

extern const OperationKind conv_operation;
const OperationKind conv_operation{
    .name = "conv",
    .summary = "a convolution of images",
    .arguments = {{.name = "channels", .value = 0, .value_name = "N", .help = "of the output", .at_least = 1},
                  {.name = "kernel", .value = 0, .value_name = "N", .help = "height and width", .at_least = 1},
                  {.name = "stride", .value = 1, .value_name = "N", .help = "in both directions", .at_least = 1},
                  {.name = "padding",
                   .value = 0,
                   .value_name = "N",
                   .help = "zeros on all sides; unless given as many as make "
                           "the output 1 / stride as large",
                   .automatic = true,
                   .at_least = 0},
                  {.name = "bias", .value = true, .value_name = "", .help = "adds a trained number to each channel"},
                  call_activation(),
                  {.name = "init", .value = Initializers{}, .value_name = "", .help = "weights", .automatic = true},
                  {.name = "bias-init", .value = Initializers{}, .value_name = "", .help = "biases", .automatic = true},
                  {.name = "decay", .value = true, .value_name = "", .help = "the weights take part in weight decay"}},
    .make = [](const Call& call) -> std::unique_ptr<Operation> {
      return std::make_unique<ConvolutionOperation>(call);
    }};

}  // namespace lockstep::model
