/// \file
/// "embedding": tokens as vectors, rows of a table [vocabulary, width], plus one row per position if positions are
/// learnt.
#include <fmt/format.h>

#include "model/graph/operation.hpp"

namespace lockstep::model {

namespace {

class EmbeddingOperation final : public Operation {
 public:
  explicit EmbeddingOperation(const Call& call)
      : vocabulary_(call.get<std::int64_t>("vocabulary")),
        width_(call.get<std::int64_t>("width")),
        has_positions_(call.get<bool>("positions")),
        initializer_(
            call.initializer("init").value_or(Initializer{.scheme = Initializer::Scheme::normal, .value = 0.02})) {}

  /// One token per element of a sample.
  ValueType declare(Declarations& declarations, std::span<const ValueType> inputs) override {
    context_ = inputs[0].shape.elements();
    const auto table = [&](std::string name, std::int64_t rows) {
      declarations.parameter({.name = std::move(name),
                              .shape = {rows, width_},
                              .initializer = initializer_,
                              .fan_in = rows,
                              .fan_out = width_});
    };
    table("tokens", vocabulary_);
    if (has_positions_) {
      if (inputs[0].order != RowOrder::sample_major) {
        throw std::invalid_argument("has positions, and a recurrent operation reads its steps: leave one of them out");
      }
      table("positions", context_);
    }
    return {.shape = {context_, width_}, .order = inputs[0].order};
  }

  OperationNeeds needs() const override { return {.reads_inputs = 1}; }
  bool takes_positions() const override { return true; }

  LayerPlan plan(const NodeView& node) const override {
    return {.name = node.name,
            .description = fmt::format("{} tokens{} -> {}", vocabulary_,
                                       has_positions_ ? fmt::format(", {} positions", context_) : "", width_),
            .parameters = (vocabulary_ + (has_positions_ ? context_ : 0)) * width_,
            .activation_elements = context_ * width_};
  }

  void forward(const NodePass& node) const override {
    Tensor positions = has_positions_ ? node.weight(kPositions) : Tensor{};
    if (const Pass::Positions& own = node.pass.positions; has_positions_ && own.count > 0) {
      positions = positions.row_range(own.first, own.count);
    }
    node.pass.sequences().embedding_forward(tokens(node), node.weight(kTokens), positions, node.out());
  }

  /// With a table that an operation behind it shares, the gradient is added.
  void backward(const NodePass& node) const override {
    const Tensor d_table = node.gradient(kTokens), d_positions = has_positions_ ? node.gradient(kPositions) : Tensor{};
    if (!d_table.present() && !d_positions.present()) return;
    const Accumulate accumulate = node.accumulate(kTokens);
    if (d_positions.present() && accumulate != node.accumulate()) node.pass.backend.fill_zero(d_positions);
    node.pass.sequences().embedding_backward(tokens(node), node.d_out(), accumulate, d_table, d_positions);
  }

 private:
  static constexpr std::size_t kTokens = 0, kPositions = 1;

  static Tensor tokens(const NodePass& node) {
    const Tensor tokens = node.in();
    return tokens.reshaped(tokens.count(), 1);
  }

  std::int64_t vocabulary_, width_, context_ = 0;
  bool has_positions_;
  Initializer initializer_;
};

}  // namespace

extern const OperationKind embedding_operation;
const OperationKind embedding_operation{
    .name = "embedding",
    .summary = "tokens as trained vectors",
    .arguments = {{.name = "vocabulary", .value = 0, .value_name = "N", .help = "different tokens", .at_least = 1},
                  {.name = "width", .value = 0, .value_name = "N", .help = "of a vector", .at_least = 1},
                  {.name = "positions", .value = false, .value_name = "", .help = "adds a vector for each position"},
                  {.name = "init", .value = Initializers{}, .value_name = "", .help = "weights", .automatic = true}},
    .reads = Holds::tokens,
    .rows = ReadsRows::either,
    .make = [](const Call& call) -> std::unique_ptr<Operation> { return std::make_unique<EmbeddingOperation>(call); }};

}  // namespace lockstep::model
