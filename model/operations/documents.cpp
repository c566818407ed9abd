/// \file
/// "documents": the place of each token in its document, counted from 0 (SequenceOperations::places_in_documents). With
/// --document-token, the reader of network files adds it after the input of a language model, for operations that
/// separate documents.
#include "model/graph/operation.hpp"

namespace lockstep::model {

namespace {

class DocumentsOperation final : public Operation {
 public:
  explicit DocumentsOperation(const Call& call) : separator_(call.get<std::int64_t>("separator")) {}

  ValueType declare(Declarations& /*declarations*/, std::span<const ValueType> inputs) override {
    order_ = inputs[0].order;
    positions_ = inputs[0].shape.elements();
    return {.shape = {inputs[0].shape.elements(), 1}, .holds = Holds::tokens, .order = order_};
  }
  OperationNeeds needs() const override { return {}; }
  bool takes_positions() const override { return true; }
  LayerPlan plan(const NodeView& /*node*/) const override { return {}; }
  std::vector<LayerPlan> lines(const NodeView& /*node*/) const override { return {}; }
  void forward(const NodePass& node) const override {
    const Tensor tokens = node.in();
    const Pass::Positions& own = node.pass.positions;
    if (own.count == 0) {
      const bool is_time_major = order_ == RowOrder::time_major;
      const std::int64_t rows = is_time_major ? positions_ : node.pass.batch;
      const std::int64_t columns = is_time_major ? node.pass.batch : positions_;
      node.pass.sequences().places_in_documents(tokens.reshaped(rows, columns),
                                                {.separator = separator_, .order = order_},
                                                node.out().reshaped(rows, columns));
      return;
    }
    const std::int64_t end = own.first + own.count;
    const Tensor places = node.out_of_all_positions().row_range(0, end).reshaped(1, end);
    node.pass.sequences().places_in_documents(tokens.reshaped(1, own.count),
                                              {.separator = separator_, .first = own.first}, places);
  }
  void backward(const NodePass& /*node*/) const override {}
  void results(const std::string& /*name*/, const NodePass& /*node*/, const TakeResult& /*take*/) const override {}

 private:
  std::int64_t separator_, positions_ = 0;
  RowOrder order_ = RowOrder::sample_major;
};

}  // namespace

extern const OperationKind documents_operation;
const OperationKind documents_operation{
    .name = "documents",
    .summary = "places of tokens in their documents",
    .arguments =
        {{.name = "separator", .value = 0, .value_name = "ID", .help = "a document's first token", .at_least = 0}},
    .reads = Holds::tokens,
    .rows = ReadsRows::either,
    .make = [](const Call& call) -> std::unique_ptr<Operation> { return std::make_unique<DocumentsOperation>(call); }};

}  // namespace lockstep::model
