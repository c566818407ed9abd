/// \file
/// "group-norm": normalises each sample over its positions and each group of channels. With as many groups as channels
/// it is instance normalisation.
#include <stdexcept>

#include <fmt/format.h>

#include "model/graph/operation.hpp"

namespace lockstep::model {

namespace {

class GroupNormOperation final : public Operation {
 public:
  explicit GroupNormOperation(const Call& call)
      : groups_(call.find<std::int64_t>("groups")), norm_{.epsilon = static_cast<float>(call.get<double>("epsilon"))} {}

  ValueType declare(Declarations& declarations, std::span<const ValueType> inputs) override {
    norm_.places = inputs[0].shape.places();
    norm_.channels = inputs[0].shape.last();
    norm_.groups = groups_.value_or(norm_.channels);
    if (norm_.channels % norm_.groups != 0) {
      throw std::invalid_argument(
          fmt::format("makes {} groups of {} channels: the groups must divide them", norm_.groups, norm_.channels));
    }
    const auto declare_part = [&](std::string name, double value) {
      declarations.parameter({.name = std::move(name),
                              .shape = {norm_.channels},
                              .initializer = {Initializer::Scheme::constant, value},
                              .decay = Decay::no});
    };
    declare_part("scale", 1);
    declare_part("shift", 0);
    declarations.saved({.name = "", .columns = norm_.groups, .holds = Holds::statistics});
    declarations.saved({.name = "", .columns = norm_.groups, .holds = Holds::statistics});
    declarations.scratch({.name = "", .columns = 2 * (norm_.channels + norm_.groups), .holds = Holds::sums});
    return inputs[0];
  }

  OperationNeeds needs() const override {
    return {.reads_inputs = 1, .gradient_in_place = 1, .narrow_inputs = 1, .narrow_output = true, .narrow_alike = true};
  }

  LayerPlan plan(const NodeView& node) const override {
    return {.name = node.name,
            .description = fmt::format("{} channels in {} groups", norm_.channels, norm_.groups),
            .parameters = 2 * norm_.channels,
            .activation_elements = norm_.elements()};
  }

  void forward(const NodePass& node) const override {
    node.pass.images().group_norm_forward(norm_, {.x = node.by_sample(node.in(), norm_.elements()),
                                                  .scale = node.weight(kScale),
                                                  .shift = node.weight(kShift),
                                                  .mean = node.saved(kMean),
                                                  .inverse = node.saved(kInverse),
                                                  .y = node.by_sample(node.out(), norm_.elements())});
  }

  void backward(const NodePass& node) const override {
    const Tensor d_x = node.d_in();
    node.pass.images().group_norm_backward(norm_,
                                           {.x = node.by_sample(node.in(), norm_.elements()),
                                            .d_y = node.by_sample(node.d_out(), norm_.elements()),
                                            .mean = node.saved(kMean),
                                            .inverse = node.saved(kInverse),
                                            .scale = node.weight(kScale),
                                            .d_scale = node.gradient(kScale),
                                            .d_shift = node.gradient(kShift),
                                            .sums = node.scratch(0),
                                            .d_x = d_x.present() ? node.by_sample(d_x, norm_.elements()) : Tensor{}},
                                           node.accumulate());
  }

 private:
  static constexpr std::size_t kScale = 0, kShift = 1;   // parameters
  static constexpr std::size_t kMean = 0, kInverse = 1;  // saved

  std::optional<std::int64_t> groups_;  ///< absent: one group per channel
  GroupNorm norm_;
};

}  // namespace

extern const OperationKind group_norm_operation;
const OperationKind group_norm_operation{
    .name = "group-norm",
    .summary = "normalisation of each sample over its places and runs of its channels",
    .arguments =
        {{.name = "groups",
          .value = 0,
          .value_name = "N",
          .help = "runs of channels; by default one for each channel: instance normalisation",
          .automatic = true,
          .at_least = 1},
         {.name = "epsilon", .value = 1e-5, .value_name = "X", .help = "added to the variance", .at_least = 1e-12}},
    .make = [](const Call& call) -> std::unique_ptr<Operation> { return std::make_unique<GroupNormOperation>(call); }};

}  // namespace lockstep::model
