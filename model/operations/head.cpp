/// \file
/// "head": the output layer of a language model, x E', with the table E of an embedding. It turns vectors into one
/// logit per token of the vocabulary (Press & Wolf 2017).
///
/// Rows of 50,257 logits in bfloat16 begin at odd multiples of 2 bytes, which tensor cores cannot read. So logits that
/// only the loss reads have padded_columns() columns in bfloat16, and E is read with as many rows. The extra rows are
/// E's padding in the arena, which is zero. The loss ignores the extra columns and sets their gradient to zero, so the
/// padding stays zero.
#include <stdexcept>

#include <fmt/format.h>

#include "model/graph/operation.hpp"
#include "model/product_padding.hpp"

namespace lockstep::model {

namespace {

class HeadOperation final : public Operation {
 public:
  explicit HeadOperation(const Call& call) : table_(call.get<std::string>("table")) {}

  ValueType declare(Declarations& declarations, std::span<const ValueType> inputs) override {
    const Declarations::Shared table = declarations.share(table_, "tokens");
    vocabulary_ = table.shape[0];
    width_ = table.shape[1];
    if (inputs[0].shape.last() != width_) {
      throw std::invalid_argument(
          fmt::format("reads {}, and the table of {} has vectors of {}", to_string(inputs[0].shape), table_, width_));
    }
    const std::int64_t columns = declarations.only_the_loss_reads() ? padded_columns(vocabulary_) : 0;
    if (columns > 0) declarations.pad_shared(table.number, (columns - vocabulary_) * width_);
    return {.shape = inputs[0].shape.with_last(vocabulary_), .order = inputs[0].order, .padded_columns = columns};
  }

  OperationNeeds needs() const override { return {.reads_inputs = 1, .always_writes = 1}; }
  bool takes_positions() const override { return true; }

  LayerPlan plan(const NodeView& node) const override {
    const std::int64_t rows = node.output.shape.places();
    const double product =
        2.0 * static_cast<double>(rows) * static_cast<double>(width_) * static_cast<double>(vocabulary_);
    return {.name = node.name,
            .description = fmt::format("{} -> {}, the embedding's table", width_, vocabulary_),
            .activation_elements = rows * vocabulary_,
            .forward_flops = product,
            .backward_flops = node.backward_flops(product, kTable),
            .products = {{.rows = rows, .inputs = width_, .outputs = padded_columns(vocabulary_)}}};
  }

  void forward(const NodePass& node) const override {
    const Tensor y = node.out();
    node.pass.sequences().project_forward(node.in(), node.weight(kTable, y.columns), y);
  }

  void backward(const NodePass& node) const override {
    const Tensor d_y = node.d_out();
    node.pass.sequences().project_backward(node.in(), node.weight(kTable, d_y.columns), d_y, node.accumulate(kTable),
                                           node.gradient(kTable, d_y.columns), node.d_in());
  }

 private:
  static constexpr std::size_t kTable = 0;

  std::string table_;
  std::int64_t vocabulary_ = 0, width_ = 0;
};

}  // namespace

extern const OperationKind head_operation;
const OperationKind head_operation{
    .name = "head",
    .summary = "a product with the table of an embedding: one logit per token",
    .arguments = {{.name = "table", .value = "", .value_name = "NAME", .help = "the embedding's name"}},
    .rows = ReadsRows::either,
    .make = [](const Call& call) -> std::unique_ptr<Operation> { return std::make_unique<HeadOperation>(call); }};

}  // namespace lockstep::model
