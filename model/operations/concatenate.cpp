/// \file
/// "concatenate": values side by side on the last extent.
#include <stdexcept>
#include <vector>

#include <fmt/format.h>

#include "model/operations/plain_operation.hpp"

namespace lockstep::model {

namespace {

class ConcatenateOperation final : public PlainOperation {
 public:
  ValueType declare(Declarations& /*declarations*/, std::span<const ValueType> inputs) override {
    const Shape& first = inputs[0].shape;
    std::int64_t columns = 0;
    for (const ValueType& input : inputs) {
      if (input.shape.with_last(first.last()) != first) {
        throw std::invalid_argument(fmt::format("joins {} and {}: they may differ in the last extent alone",
                                                to_string(first), to_string(input.shape)));
      }
      columns_.push_back(input.shape.last());
      columns += input.shape.last();
    }
    return {.shape = first.with_last(columns)};
  }

  std::string describe(const NodeView& node) const override {
    return fmt::format("{} values -> {}", columns_.size(), to_string(node.output.shape));
  }

  void forward(const NodePass& node) const override {
    std::int64_t column = 0;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      node.pass.backend.copy_columns(node.in(i), 0, node.out(), column, columns_[i]);
      column += columns_[i];
    }
  }

  void backward(const NodePass& node) const override {
    std::int64_t column = 0;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const Tensor d_in = node.d_in(i);
      if (d_in.present()) node.pass.backend.copy_columns(node.d_out(), column, d_in, 0, columns_[i]);
      column += columns_[i];
    }
  }

 private:
  std::vector<std::int64_t> columns_;
};

}  // namespace

extern const OperationKind concatenate_operation;
const OperationKind concatenate_operation{
    .name = "concatenate",
    .summary = "values side by side on the last extent",
    .least_inputs = 2,
    .most_inputs = 16,
    .make = [](const Call&) -> std::unique_ptr<Operation> { return std::make_unique<ConcatenateOperation>(); }};

}  // namespace lockstep::model
