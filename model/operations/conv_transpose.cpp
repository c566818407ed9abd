/// \file
/// "conv-transpose": the transpose of a convolution, in one to three directions. With a stride it enlarges the value.
/// The weights are [kernel in each direction, out channels / groups, in channels], those of the convolution from the
/// output to the input. Forward computes that convolution's input gradient; backward computes its forward.
#include <array>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>

#include "model/graph/operation.hpp"
#include "model/graph/windows.hpp"

namespace lockstep::model {

namespace {

class TransposedConvolution final : public Operation {
 public:
  explicit TransposedConvolution(const Call& call)
      : call_(call),
        channels_(call.get<std::int64_t>("channels")),
        groups_(call.get<std::int64_t>("groups")),
        has_bias_(call.get<bool>("bias")),
        activation_(parse_activation(call.get<std::string>("activation"))),
        weight_initializer_(call.initializer("init").value_or(Initializer{.scheme = Initializer::Scheme::he_normal})),
        bias_initializer_(call.initializer("bias-init").value_or(Initializer{})) {}

  ValueType declare(Declarations& declarations, std::span<const ValueType> inputs) override {
    const char* const reader = "a transposed convolution";
    directions_ = directions_of(inputs[0].shape, reader);
    const ImageShape in = image_of_places(inputs[0].shape, reader);
    if (in.channels % groups_ != 0 || channels_ % groups_ != 0) {
      throw std::invalid_argument(fmt::format("makes {} channels of {} in {} groups: the groups must divide both",
                                              channels_, in.channels, groups_));
    }
    const Shape large = large_shape(inputs[0].shape);
    const ImageShape out = image_of_places(large, reader);
    shape_ = {.in = out, .out = in, .window = window_of(call_, "kernel", out, directions_), .groups = groups_};
    if (slide(out, shape_.window, in.channels) != in) {
      throw std::invalid_argument(fmt::format("makes no {} of {} with padding {}: give padding same or valid",
                                              to_string(large), to_string(inputs[0].shape),
                                              call_.get<std::string>("padding")));
    }
    std::vector<std::int64_t> extents = for_directions(call_.get<Numbers>("kernel"), "kernel", directions_);
    extents.insert(extents.end(), {shape_.channels_read(), in.channels});
    const std::int64_t fan_in = shape_.window.positions() * in.channels / groups_, fan_out = shape_.patch();
    declarations.parameter({.name = "weight",
                            .shape = std::move(extents),
                            .initializer = weight_initializer_,
                            .fan_in = fan_in,
                            .fan_out = fan_out,
                            .decay = call_.get<bool>("decay") ? Decay::yes : Decay::no});
    if (has_bias_) {
      declarations.parameter({.name = "bias",
                              .shape = {channels_},
                              .initializer = bias_initializer_,
                              .fan_in = fan_in,
                              .fan_out = fan_out,
                              .decay = Decay::no});
    }
    return {.shape = large};
  }

  OperationNeeds needs() const override {
    return {.reads_inputs = 1,
            .reads_output = activation_ != Activation::none,
            .overwrites_gradient = activation_ != Activation::none,
            .narrow_inputs = 1,
            .narrow_output = true};
  }

  LayerPlan plan(const NodeView& node) const override {
    const double product = 2.0 * static_cast<double>(shape_.patch()) * static_cast<double>(shape_.out.elements());
    return {.name = node.name,
            .description = fmt::format(
                "{} -> {}, {} transposed{}{}", to_string(node.inputs[0].shape), to_string(node.output.shape),
                window_text(shape_.window, directions_), groups_ > 1 ? fmt::format(", {} groups", groups_) : "",
                activation_ == Activation::none ? "" : fmt::format(", {}", name_of(activation_))),
            .parameters = shape_.patch() * shape_.out.channels + (has_bias_ ? channels_ : 0),
            .activation_elements = shape_.in.elements(),
            .forward_flops = product,
            .backward_flops = node.backward_flops(product, kWeight),
            .patch_elements = groups_ > 1 ? 0 : whole_packs(shape_.patch()) * shape_.out.pixels()};
  }

  void forward(const NodePass& node) const override {
    ImageOperations& images = node.pass.images();
    const Tensor y = node.out();
    if (y.count() == 0) return;
    images.convolution_backward(shape_,
                                {.x = {},
                                 .w = node.weight(kWeight),
                                 .d_y = node.by_sample(node.in(), shape_.out.elements()),
                                 .d_x = node.by_sample(y, shape_.in.elements())},
                                Activation::none, Accumulate::no);
    images.bias_forward(has_bias_ ? node.weight(kBias) : Tensor{}, activation_, y);
  }

  void backward(const NodePass& node) const override {
    ImageOperations& images = node.pass.images();
    const Tensor d_bias = has_bias_ ? node.gradient(kBias) : Tensor{}, d_w = node.gradient(kWeight);
    images.bias_backward(activation_, node.out(), node.d_out(), node.accumulate(), d_bias);
    const Tensor d_y = node.by_sample(node.d_out(), shape_.in.elements());
    if (d_w.present()) {
      images.convolution_backward(
          shape_,
          {.x = d_y, .w = node.weight(kWeight), .d_y = node.by_sample(node.in(), shape_.out.elements()), .d_w = d_w},
          Activation::none, node.accumulate());
    }
    if (const Tensor d_x = node.d_in(); d_x.present()) {
      images.convolution_forward(shape_, d_y, node.weight(kWeight), {}, Activation::none,
                                 node.by_sample(d_x, shape_.out.elements()));
    }
  }

 private:
  static constexpr std::size_t kWeight = 0, kBias = 1;

  /// Returns the output shape: `stride` times as large with padding "same", else the smallest whose convolution has
  /// shape `small`.
  Shape large_shape(const Shape& small) const {
    const auto number = [&](std::string_view name, std::size_t i) {
      return for_directions(call_.get<Numbers>(name), name, directions_)[i];
    };
    const auto padding = call_.get<std::string>("padding");
    const Numbers margins = for_directions(padding_numbers(padding), "padding", directions_);
    std::vector<std::int64_t> extents(small.extents().begin(), small.extents().end());
    for (std::size_t i = 0; i < directions_; ++i) {
      const std::int64_t reach = (number("kernel", i) - 1) * number("dilation", i) + 1, stride = number("stride", i);
      extents[i] = padding == "same" ? extents[i] * stride : (extents[i] - 1) * stride + reach - 2 * margins[i];
      if (extents[i] < 1) {
        throw std::invalid_argument(
            fmt::format("has padding {}, which leaves nothing of {}: give less", padding, to_string(small)));
      }
    }
    return Shape(extents).with_last(channels_);
  }

  Call call_;
  std::int64_t channels_, groups_;
  std::size_t directions_ = 0;
  bool has_bias_;
  Activation activation_;
  Initializer weight_initializer_, bias_initializer_;
  Convolution shape_{};  ///< from the output to the input
};

}  // namespace

extern const OperationKind conv_transpose_operation;
const OperationKind conv_transpose_operation{
    .name = "conv-transpose",
    .summary = "the transpose of a convolution: with a stride it makes the value larger",
    .arguments = {{.name = "channels", .value = 0, .value_name = "N", .help = "of the output", .at_least = 1},
                  size_argument("kernel"),
                  stride_argument(),
                  padding_argument(),
                  dilation_argument(),
                  {.name = "groups",
                   .value = 1,
                   .value_name = "N",
                   .help = "runs of channels that are convolved each alone",
                   .at_least = 1},
                  {.name = "bias", .value = true, .value_name = "", .help = "adds a trained number to each channel"},
                  {.name = "activation",
                   .value = "none",
                   .value_name = "NAME",
                   .help = "behind it",
                   .words = {"none", "relu", "tanh", "sigmoid"}},
                  {.name = "init", .value = Initializers{}, .value_name = "", .help = "weights", .automatic = true},
                  {.name = "bias-init", .value = Initializers{}, .value_name = "", .help = "biases", .automatic = true},
                  {.name = "decay", .value = true, .value_name = "", .help = "the weights take part in weight decay"}},
    .make = [](const Call& call) -> std::unique_ptr<Operation> {
      return std::make_unique<TransposedConvolution>(call);
    }};

}  // namespace lockstep::model
