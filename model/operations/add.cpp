/// \file
/// "add": the sum of values of one shape.
#include <stdexcept>

#include <fmt/format.h>

#include "model/operations/plain_operation.hpp"

namespace lockstep::model {

namespace {

class AddOperation final : public PlainOperation {
 public:
  ValueType declare(Declarations& /*declarations*/, std::span<const ValueType> inputs) override {
    count_ = inputs.size();
    for (const ValueType& input : inputs) {
      if (input.shape == inputs[0].shape) continue;
      throw std::invalid_argument(
          fmt::format("adds {} and {}: they must have one shape", to_string(inputs[0].shape), to_string(input.shape)));
    }
    return inputs[0];
  }

  OperationNeeds needs() const override {
    const std::uint32_t all = (std::uint32_t{1} << count_) - 1;
    return {.passes_on = all,
            .in_place = 3,
            .is_sum = count_ == 2,
            .narrow_inputs = all,
            .narrow_output = true,
            .narrow_alike = true};
  }
  bool takes_positions() const override { return true; }

  std::string describe(const NodeView& /*node*/) const override { return fmt::format("sum of {}", count_); }

  void forward(const NodePass& node) const override {
    const Tensor y = node.out();
    const std::size_t in_place = y.data == node.in(1).data ? 1 : 0;  // input that shares the output's memory
    if (y.data != node.in(in_place).data) node.pass.backend.cast(node.in(in_place), y);
    node.pass.backend.add(node.in(1 - in_place), y);
    for (std::size_t i = 2; i < count_; ++i) node.pass.backend.add(node.in(i), y);
  }

  void backward(const NodePass& /*node*/) const override {}

 private:
  std::size_t count_ = 0;
};

}  // namespace

extern const OperationKind add_operation;
const OperationKind add_operation{
    .name = "add",
    .summary = "the sum of values of one shape",
    .least_inputs = 2,
    .most_inputs = 16,
    .rows = ReadsRows::either,
    .make = [](const Call&) -> std::unique_ptr<Operation> { return std::make_unique<AddOperation>(); }};

}  // namespace lockstep::model
