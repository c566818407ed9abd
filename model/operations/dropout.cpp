/// \file
/// "dropout": drops elements in training (Dropout in randomness.hpp); a view in evaluation.
#include <fmt/format.h>

#include "model/operations/plain_operation.hpp"

namespace lockstep::model {

namespace {

class DropoutOperation final : public PlainOperation {
 public:
  explicit DropoutOperation(const Call& call) : rule_{.rate = static_cast<float>(call.get<double>("rate"))} {}

  ValueType declare(Declarations& declarations, std::span<const ValueType> inputs) override {
    rule_.stream = declarations.dropout_stream();
    rule_.order = inputs[0].order;
    return inputs[0];
  }

  OperationNeeds needs() const override {
    return {.in_place = 1,
            .gradient_in_place = 1,
            .training_only = true,
            .narrow_inputs = 1,
            .narrow_output = true,
            .narrow_alike = true};
  }
  bool takes_positions() const override { return true; }

  std::string describe(const NodeView& /*node*/) const override { return fmt::format("drops {:g}", rule_.rate); }

  void forward(const NodePass& node) const override { drop(node, node.in(), node.out()); }
  void backward(const NodePass& node) const override { drop(node, node.d_out(), node.d_in()); }

 private:
  /// Without keys nothing is dropped.
  void drop(const NodePass& node, const Tensor& from, const Tensor& to) const {
    Dropout rule = rule_;
    if (!node.pass.keys.present()) rule.rate = 0;
    node.pass.sequences().dropout(from, node.pass.keys, rule, to);
  }

  Dropout rule_;
};

}  // namespace

extern const OperationKind dropout_operation;
const OperationKind dropout_operation{
    .name = "dropout",
    .summary = "drops elements in training",
    .arguments = {{.name = "rate",
                   .value = -1.0,
                   .value_name = "RATE",
                   .help = "share of the elements",
                   .at_least = 0,
                   .below = 1}},
    .rows = ReadsRows::either,
    .make = [](const Call& call) -> std::unique_ptr<Operation> { return std::make_unique<DropoutOperation>(call); }};

}  // namespace lockstep::model
