/// \file
/// "conv": y = act(x * W + b) along all extents but the channels, in one to three directions, as many as the value has.
/// The weights are [kernel in each direction, in channels / groups, out channels].
#include <cmath>
#include <optional>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>

#include "model/graph/layer_activation.hpp"
#include "model/graph/operation.hpp"
#include "model/graph/windows.hpp"
#include "model/product_padding.hpp"

namespace lockstep::model {

namespace {

class ConvolutionOperation final : public Operation {
 public:
  explicit ConvolutionOperation(const Call& call)
      : call_(call),
        channels_(call.get<std::int64_t>("channels")),
        groups_(call.get<std::int64_t>("groups")),
        has_bias_(call.get<bool>("bias")),
        activation_(layer_activation(call.get<std::string>("activation"))),
        weight_initializer_(call.initializer("init")),
        bias_initializer_(call.initializer("bias-init").value_or(Initializer{})),
        decay_(call.get<bool>("decay") ? Decay::yes : Decay::no) {}

  ValueType declare(Declarations& declarations, std::span<const ValueType> inputs) override {
    const ImageShape in = image_of_places(inputs[0].shape, "a convolution");
    directions_ = directions_of(inputs[0].shape, "a convolution");
    if (in.channels % groups_ != 0 || channels_ % groups_ != 0) {
      throw std::invalid_argument(fmt::format("makes {} channels of {} in {} groups: the groups must divide both",
                                              channels_, in.channels, groups_));
    }
    const Sliding window = window_of(call_, "kernel", in, directions_);
    shape_ = {.in = in, .out = slide(in, window, channels_), .window = window, .groups = groups_};
    const std::int64_t area = window.positions();
    std::vector<std::int64_t> extents = for_directions(call_.get<Numbers>("kernel"), "kernel", directions_);
    extents.insert(extents.end(), {shape_.channels_read(), channels_});
    declarations.parameter({.name = "weight",
                            .shape = std::move(extents),
                            .initializer = weight_initializer_.value_or(usual_weights()),
                            .fan_in = shape_.patch(),
                            .fan_out = area * channels_,
                            .decay = decay_});
    if (has_bias_) {
      declarations.parameter({.name = "bias",
                              .shape = {channels_},
                              .initializer = bias_initializer_,
                              .fan_in = shape_.patch(),
                              .fan_out = area * channels_,
                              .decay = Decay::no});
    }
    if (activation_.gelu) declarations.saved({.name = "", .rows = shape_.out.pixels(), .columns = channels_});
    return {.shape = shape_of_places(shape_.out, directions_)};
  }
  /// A window of one position does not mix positions.
  bool is_causal() const override {
    return shape_.window.positions() == 1 && shape_.in.pixels() == shape_.out.pixels();
  }

  OperationNeeds needs() const override {
    return {.reads_inputs = 1,
            .reads_output = activation_.fused != Activation::none,
            .overwrites_gradient = !activation_.is_none(),
            .adds = activation_.is_none() ? 1u : 0u,
            .narrow_inputs = 1,
            .narrow_output = !activation_.gelu};
  }

  LayerPlan plan(const NodeView& node) const override {
    const double product = 2.0 * static_cast<double>(shape_.patch()) * static_cast<double>(shape_.out.elements());
    const bool is_product = shape_.patch() == shape_.in.channels && shape_.out.pixels() == shape_.in.pixels();
    std::vector<LinearMap> products;
    if (groups_ == 1) {  // convolutions with several groups use other kernels
      products.push_back({.rows = shape_.out.pixels(),
                          .inputs = shape_.patch(),
                          .outputs = channels_,
                          .stored_inputs = is_product ? 0 : whole_packs(shape_.patch())});
    }
    return {
        .name = node.name,
        .description = fmt::format("{} -> {}, {}{}{}", to_string(node.inputs[0].shape), to_string(node.output.shape),
                                   window_text(shape_.window, directions_),
                                   groups_ > 1 ? fmt::format(", {} groups", groups_) : "", text_behind(activation_)),
        .parameters = shape_.patch() * channels_ + (has_bias_ ? channels_ : 0),
        .activation_elements = (activation_.gelu ? 2 : 1) * shape_.out.elements(),
        .forward_flops = product,
        .backward_flops = node.backward_flops(product, kWeight),
        .patch_elements = is_product || groups_ > 1 ? 0 : whole_packs(shape_.patch()) * shape_.out.pixels(),
        .products = std::move(products)};
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

  /// Returns the default initializer. Weights without bias (before a norm) preserve the variance of gradients in
  /// backward (He et al. 2015, equation 14), others that of values in forward.
  Initializer usual_weights() const {
    if (has_bias_) return {.scheme = Initializer::Scheme::he_normal};
    const auto fan_out = static_cast<double>(shape_.window.positions() * channels_);
    return {.scheme = Initializer::Scheme::normal, .value = std::sqrt(2 / fan_out)};
  }

  Call call_;
  std::int64_t channels_, groups_;
  std::size_t directions_ = 0;
  bool has_bias_;
  Convolution shape_{};
  LayerActivation activation_;
  std::optional<Initializer> weight_initializer_;
  Initializer bias_initializer_;
  Decay decay_;
};

}  // namespace

extern const OperationKind conv_operation;
const OperationKind conv_operation{
    .name = "conv",
    .summary = "a convolution of series, images or volumes",
    .arguments = {{.name = "channels", .value = 0, .value_name = "N", .help = "of the output", .at_least = 1},
                  size_argument("kernel"),
                  stride_argument(),
                  padding_argument(),
                  dilation_argument(),
                  {.name = "groups",
                   .value = 1,
                   .value_name = "N",
                   .help = "runs of channels that are convolved each alone; as many as channels: depthwise",
                   .at_least = 1},
                  {.name = "bias", .value = true, .value_name = "", .help = "adds a trained number to each channel"},
                  call_activation(),
                  {.name = "init", .value = Initializers{}, .value_name = "", .help = "weights", .automatic = true},
                  {.name = "bias-init", .value = Initializers{}, .value_name = "", .help = "biases", .automatic = true},
                  {.name = "decay", .value = true, .value_name = "", .help = "the weights take part in weight decay"}},
    .make = [](const Call& call) -> std::unique_ptr<Operation> {
      return std::make_unique<ConvolutionOperation>(call);
    }};

}  // namespace lockstep::model
