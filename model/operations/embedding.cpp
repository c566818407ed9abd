/// \file
/// "embedding": replaces each token by a row of a table [vocabulary, width], and adds a row per position if positions
/// are learnt. A second input may hold each position's place in its document ("documents"); positions then restart in
/// each document.
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

  /// Each element of a sample is one token.
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
    has_documents_ = inputs.size() > 1;
    if (has_documents_ && (!has_positions_ || inputs[1].shape.elements() != context_)) {
      throw std::invalid_argument(
          "reads places in documents, one for each of its positions: it needs `positions: yes`");
    }
    return {.shape = {context_, width_}, .order = inputs[0].order};
  }

  OperationNeeds needs() const override {
    return {.reads_inputs = has_documents_ ? 3u : 1u, .keeps_inputs = has_documents_ ? 2u : 0u};
  }
  bool takes_positions() const override { return true; }

  LayerPlan plan(const NodeView& node) const override {
    return {.name = node.name,
            .description = fmt::format(
                "{} tokens{} -> {}", vocabulary_,
                has_positions_ ? fmt::format(", {} positions{}", context_, has_documents_ ? " of documents" : "") : "",
                width_),
            .parameters = (vocabulary_ + (has_positions_ ? context_ : 0)) * width_,
            .activation_elements = context_ * width_};
  }

  void forward(const NodePass& node) const override {
    Tensor positions = has_positions_ ? node.weight(kPositions) : Tensor{};
    const Pass::Positions& own = node.pass.positions;
    if (has_positions_ && !has_documents_ && own.count > 0) positions = positions.row_range(own.first, own.count);
    node.pass.sequences().embedding_forward(tokens(node), node.weight(kTokens), positions, node.out(), places(node));
  }

  /// Adds the table's gradient if a later operation shares the table.
  void backward(const NodePass& node) const override {
    const Tensor d_table = node.gradient(kTokens), d_positions = has_positions_ ? node.gradient(kPositions) : Tensor{};
    if (!d_table.present() && !d_positions.present()) return;
    const Accumulate accumulate = node.accumulate(kTokens);
    SequenceOperations& sequences = node.pass.sequences();
    if (has_documents_) {  // places index the table of positions like tokens
      if (d_table.present()) sequences.embedding_backward(tokens(node), node.d_out(), accumulate, d_table, {});
      if (!d_positions.present()) return;
      return sequences.embedding_backward(places(node), node.d_out(), node.accumulate(), d_positions, {});
    }
    if (d_positions.present() && accumulate != node.accumulate()) node.pass.backend.fill_zero(d_positions);
    sequences.embedding_backward(tokens(node), node.d_out(), accumulate, d_table, d_positions);
  }

 private:
  static constexpr std::size_t kTokens = 0, kPositions = 1;

  static Tensor tokens(const NodePass& node) {
    const Tensor tokens = node.in();
    return tokens.reshaped(tokens.count(), 1);
  }

  Tensor places(const NodePass& node) const {
    if (!has_documents_) return {};
    const Tensor places = node.in(1);
    return places.reshaped(places.count(), 1);
  }

  std::int64_t vocabulary_, width_, context_ = 0;
  bool has_positions_, has_documents_ = false;
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
    .most_inputs = 2,
    .reads = Holds::tokens,
    .rows = ReadsRows::either,
    .make = [](const Call& call) -> std::unique_ptr<Operation> { return std::make_unique<EmbeddingOperation>(call); }};

}  // namespace lockstep::model
