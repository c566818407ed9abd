/// \file
/// "batch-norm": batch normalisation per channel. An optional second input is added, then an optional ReLU applied.
///
/// Training normalises with the statistics of this rank's batch or, synchronised, of the batches of all ranks. The
/// synchronised form is collective: each pass sums over the ranks 2 channels + 1 numbers forward, and 2 channels
/// numbers backward. Evaluation normalises with running statistics, which are slices of Role::statistic. For them, the
/// backward pass writes this batch's mean and unbiased variance, times the batch's share of the step, as gradients
/// (parameters.hpp). A batch of one value per channel has no variance: for it, the backward pass writes the running
/// statistics themselves, so that they do not change. A frozen batch norm uses its running statistics in training, too,
/// and does not change them.
#include <optional>
#include <stdexcept>

#include <fmt/format.h>

#include "model/graph/operation.hpp"

namespace lockstep::model {

namespace {

class BatchNormOperation final : public Operation {
 public:
  explicit BatchNormOperation(const Call& call)
      : norm_{.relu = call.get<bool>("relu")},
        first_scale_(call.get<double>("scale")),
        synchronizes_(call.get<bool>("synchronize")) {}

  ValueType declare(Declarations& declarations, std::span<const ValueType> inputs) override {
    const Shape& shape = inputs[0].shape;
    has_residual_ = inputs.size() == 2;
    if (has_residual_ && inputs[1].shape != shape) {
      throw std::invalid_argument(
          fmt::format("adds {} to {}: they must have one shape", to_string(inputs[1].shape), to_string(shape)));
    }
    norm_.channels = shape.last();
    elements_ = shape.elements();
    const auto declare_part = [&](std::string name, double value, Role role, std::optional<std::size_t> with) {
      declarations.parameter({.name = std::move(name),
                              .shape = {norm_.channels},
                              .initializer = {Initializer::Scheme::constant, value},
                              .decay = Decay::no,
                              .role = role,
                              .frozen_with = with});
    };
    declare_part("scale", first_scale_, Role::weight, {});
    declare_part("shift", 0, Role::weight, kScale);
    declare_part("running_mean", 0, Role::statistic, kScale);
    declare_part("running_variance", 1, Role::statistic, kScale);
    const auto spec = [](std::int64_t columns, Holds holds) {
      return ActivationSpec{.name = "", .columns = columns, .holds = holds, .per_batch = true};
    };
    declarations.saved(spec(norm_.channels, Holds::statistics));
    declarations.saved(spec(norm_.channels, Holds::statistics));
    declarations.saved(spec(2 * norm_.channels + 1, Holds::sums));
    declarations.scratch(spec(2 * norm_.channels, Holds::sums));
    if (synchronizes_) declarations.synchronizes();
    return inputs[0];
  }

  OperationNeeds needs() const override {
    return {.reads_inputs = 1,
            .reads_output = norm_.relu,
            .overwrites_gradient = norm_.relu,
            .passes_on = has_residual_ ? 2u : 0u,
            .in_place = has_residual_ ? 2u : 0u,
            .gradient_in_place = 1,
            .always_writes = 1,
            .narrow_inputs = has_residual_ ? 3u : 1u,
            .narrow_output = true,
            .narrow_alike = true};
  }

  LayerPlan plan(const NodeView& node) const override {
    return {.name = node.name,
            .description = fmt::format("{} channels{}", norm_.channels, norm_.relu ? ", relu" : ""),
            .parameters = 2 * norm_.channels,
            .activation_elements = elements_};
  }

  void forward(const NodePass& node) const override {
    ImageOperations& images = node.pass.images();
    const Tensor x = by_sample(node, node.in(0)), y = by_sample(node, node.out()),
                 residual = has_residual_ ? by_sample(node, node.in(1)) : Tensor{};
    const Tensor scale = node.weight(kScale), shift = node.weight(kShift);
    if (!node.pass.training || node.is_frozen(kScale)) {
      return images.batch_norm_inference(norm_, {.x = x,
                                                 .mean = node.weight(kRunningMean),
                                                 .variance = node.weight(kRunningVariance),
                                                 .scale = scale,
                                                 .shift = shift,
                                                 .residual = residual,
                                                 .y = y});
    }
    const Tensor sums = node.saved(kSums);
    images.batch_norm_sums(norm_, x, sums);
    sum_over_ranks(node, sums);
    images.batch_norm_forward(norm_, {.x = x,
                                      .sums = sums,
                                      .scale = scale,
                                      .shift = shift,
                                      .residual = residual,
                                      .mean = node.saved(kMean),
                                      .inverse = node.saved(kInverse),
                                      .y = y});
  }

  /// Overwrites the output's gradient with the gradient of the added input.
  void backward(const NodePass& node) const override {
    ImageOperations& images = node.pass.images();
    const Tensor x = by_sample(node, node.in(0)), d_y = by_sample(node, node.d_out()),
                 d_x = by_sample(node, node.d_in(0)), y = norm_.relu ? by_sample(node, node.out()) : Tensor{};
    if (node.is_frozen(kScale)) {
      return images.batch_norm_inference_backward(
          norm_,
          {.y = y, .d_y = d_y, .variance = node.weight(kRunningVariance), .scale = node.weight(kScale), .d_x = d_x});
    }
    const Tensor mean = node.saved(kMean), inverse = node.saved(kInverse), sums = node.saved(kSums),
                 backward_sums = node.scratch(0);
    if (sees_one_value(node)) {
      keep_statistic(node, kRunningMean);
      keep_statistic(node, kRunningVariance);
    } else {
      images.batch_norm_statistics(norm_, sums, node.pass.share, node.accumulate(), node.gradient(kRunningMean),
                                   node.gradient(kRunningVariance));
    }
    const bool recomputed = norm_.relu && !has_residual_ && images.recomputes_relu();
    const Tensor scale = node.weight(kScale), shift = recomputed ? node.weight(kShift) : Tensor{};
    images.batch_norm_backward_sums(norm_,
                                    {.x = x,
                                     .y = recomputed ? Tensor{} : y,
                                     .d_y = d_y,
                                     .mean = mean,
                                     .inverse = inverse,
                                     .scale = recomputed ? scale : Tensor{},
                                     .shift = shift,
                                     .d_scale = node.gradient(kScale),
                                     .d_shift = node.gradient(kShift),
                                     .sums = backward_sums},
                                    node.accumulate());
    sum_over_ranks(node, backward_sums);
    images.batch_norm_backward(norm_, {.x = x,
                                       .d_y = d_y,
                                       .mean = mean,
                                       .inverse = inverse,
                                       .scale = scale,
                                       .shift = shift,
                                       .forward_sums = sums,
                                       .sums = backward_sums,
                                       .d_x = d_x});
  }

 private:
  static constexpr std::size_t kScale = 0, kShift = 1, kRunningMean = 2,
                               kRunningVariance = 3;                // parameters
  static constexpr std::size_t kMean = 0, kInverse = 1, kSums = 2;  // saved

  /// True if the batch is one value per channel. A synchronised batch is known to be one if it is the whole step.
  bool sees_one_value(const NodePass& node) const {
    const bool is_alone = !synchronizes_ || node.pass.sum_over_ranks == nullptr || node.pass.share >= 1;
    return is_alone && node.pass.batch * elements_ == norm_.channels;
  }
  /// Writes the statistic, times the batch's share of the step, as its own gradient.
  void keep_statistic(const NodePass& node, std::size_t statistic) const {
    const Tensor now = node.weight(statistic);
    Tensor part = now;
    part.data = node.scratch(0).data;  // backward's sums, which are written later
    node.pass.backend.elementwise_forward(
        {.function = Function::scale, .parameter = static_cast<float>(node.pass.share)}, now, part);
    node.pass.images().bias_backward(Activation::none, {}, part, node.accumulate(), node.gradient(statistic));
  }
  Tensor by_sample(const NodePass& node, const Tensor& tensor) const { return node.by_sample(tensor, elements_); }
  void sum_over_ranks(const NodePass& node, const Tensor& sums) const {
    if (synchronizes_ && node.pass.sum_over_ranks != nullptr) (*node.pass.sum_over_ranks)(sums);
  }

  BatchNorm norm_;
  double first_scale_;
  bool synchronizes_, has_residual_ = false;
  std::int64_t elements_ = 0;
};

}  // namespace

extern const OperationKind batch_norm_operation;
const OperationKind batch_norm_operation{
    .name = "batch-norm",
    .summary = "batch normalisation; a second input is added behind it",
    .arguments = {{.name = "relu", .value = false, .value_name = "", .help = "a ReLU behind the addition"},
                  {.name = "scale", .value = 1.0, .value_name = "X", .help = "initial scale"},
                  {.name = "synchronize", .value = false, .value_name = "", .help = "statistics over all ranks"}},
    .least_inputs = 1,
    .most_inputs = 2,
    .make = [](const Call& call) -> std::unique_ptr<Operation> { return std::make_unique<BatchNormOperation>(call); }};

}  // namespace lockstep::model
