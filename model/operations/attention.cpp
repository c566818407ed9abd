/// \file
/// "attention": self-attention with several heads, causal by default (Attention in sequence_operations.hpp). It reads
/// queries, keys and values side by side, usually from a dense operation three times as wide. A second input may hold
/// each position's place in its document ("documents") or the lengths of series.
#include <stdexcept>

#include <fmt/format.h>

#include "model/device_workspaces.hpp"
#include "model/graph/operation.hpp"
#include "model/operations/series_lengths.hpp"

namespace lockstep::model {

namespace {

class AttentionOperation final : public Operation {
 public:
  explicit AttentionOperation(const Call& call) : heads_(call.get<std::int64_t>("heads")) {
    shape_.causal = call.get<bool>("causal");
    shape_.dropout.rate = static_cast<float>(call.get<double>("dropout"));
  }

  ValueType declare(Declarations& declarations, std::span<const ValueType> inputs) override {
    const Shape& joint = inputs[0].shape;
    if (joint.count() != 2 || joint.last() % (3 * heads_) != 0) {
      throw std::invalid_argument(
          fmt::format("reads {}, and attention of {} heads reads positions x 3 times a multiple of the heads: queries, "
                      "keys and values",
                      to_string(joint), heads_));
    }
    has_documents_ = inputs.size() > 1 && inputs[1].shape.count() > 1;
    has_lengths_ = !has_documents_ && reads_lengths(inputs, joint.places());
    if (has_documents_ && (!shape_.causal || inputs[1].shape.elements() != joint.places())) {
      throw std::invalid_argument("reads places in documents, which causal attention takes, one for each position");
    }
    shape_.context = joint.places();
    shape_.heads = heads_;
    shape_.head_size = joint.last() / (3 * heads_);
    if (shape_.dropout.rate > 0) shape_.dropout.stream = declarations.dropout_stream();
    declarations.saved({.name = "", .rows = heads_, .columns = shape_.context, .holds = Holds::statistics});
    return {.shape = joint.with_last(shape_.width())};
  }

  OperationNeeds needs() const override {
    return {.reads_inputs = has_documents_ || has_lengths_ ? 3u : 1u,
            .reads_output = true,
            .keeps_inputs = has_documents_ ? 3u : 1u,
            .narrow_inputs = 1,
            .narrow_output = true,
            .narrow_alike = true};
  }
  bool takes_positions() const override { return shape_.causal; }

  /// Costs of the scores and of their product with the values. The causal mask halves both.
  LayerPlan plan(const NodeView& node) const override {
    const auto context = static_cast<double>(shape_.context);
    const double pairs = shape_.causal ? 0.5 * context * (context + 1) : context * context;
    const double products = 2 * 2.0 * pairs * static_cast<double>(shape_.width());
    return {.name = node.name,
            .description = fmt::format("{} heads of {}, context {}{}", heads_, shape_.head_size, shape_.context,
                                       has_documents_  ? ", within documents"
                                       : shape_.causal ? ""
                                                       : ", both sides"),
            .activation_elements = node.output.shape.elements(),
            .forward_flops = products,
            .backward_flops = node.goes_on ? 2 * products : 0,
            .score_elements = shape_.dropout.rate > 0 ? 0 : scores_in_tiles(heads_, shape_.context)};
  }

  void forward(const NodePass& node) const override {
    Attention shape = shape_of(node);
    AttentionForwardOperands operands{.joint = node.in(),
                                      .dropout_keys = node.pass.keys,
                                      .mask = mask_of(node),
                                      .y = node.out(),
                                      .log_sums = node.saved_of_all_positions(kLogSums)};
    if (const Pass::Positions& own = node.pass.positions;
        own.count > 0) {  // earlier passes have left the keys and values of earlier positions
      shape.first = own.first;
      shape.context = own.first + own.count;
      operands.joint = node.in_of_all_positions().row_range(0, shape.context);
      if (has_documents_) operands.mask = {.places = node.in_of_all_positions(1).row_range(0, shape.context)};
      operands.log_sums = operands.log_sums.slice({0, static_cast<std::size_t>(heads_ * shape.context)})
                              .reshaped(heads_, shape.context);
    }
    node.pass.sequences().attention_forward(shape, operands);
  }

  void backward(const NodePass& node) const override {
    if (!node.d_in().present()) return;
    node.pass.sequences().attention_backward(shape_of(node), {.joint = node.in(),
                                                              .dropout_keys = node.pass.keys,
                                                              .mask = mask_of(node),
                                                              .y = node.out(),
                                                              .log_sums = node.saved(kLogSums),
                                                              .d_y = node.d_out(),
                                                              .d_joint = node.d_in()});
  }

 private:
  static constexpr std::size_t kLogSums = 0;  // saved

  /// Without keys nothing is dropped.
  Attention shape_of(const NodePass& node) const {
    Attention shape = shape_;
    if (!node.pass.keys.present()) shape.dropout.rate = 0;
    return shape;
  }

  AttentionMask mask_of(const NodePass& node) const {
    if (has_lengths_) return {.lengths = node.in(1)};
    if (!has_documents_) return {};
    const Tensor places = node.in(1);
    return {.places = places.reshaped(places.count(), 1)};
  }

  std::int64_t heads_;
  bool has_documents_ = false, has_lengths_ = false;
  Attention shape_;
};

}  // namespace

extern const OperationKind attention_operation;
const OperationKind attention_operation{
    .name = "attention",
    .summary = "self-attention over queries, keys and values",
    .arguments = {{.name = "heads", .value = 1, .value_name = "N", .help = "of equal width", .at_least = 1},
                  {.name = "causal", .value = true, .value_name = "", .help = "positions see earlier ones alone"},
                  {.name = "dropout",
                   .value = 0.0,
                   .value_name = "RATE",
                   .help = "share of the attention's weights that training drops",
                   .at_least = 0,
                   .below = 1}},
    .most_inputs = 2,
    .token_inputs = 2,
    .make = [](const Call& call) -> std::unique_ptr<Operation> { return std::make_unique<AttentionOperation>(call); }};

}  // namespace lockstep::model
