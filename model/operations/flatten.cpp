/// \file
/// "flatten": the same elements with one extent.
#include "model/graph/operation.hpp"

namespace lockstep::model {

namespace {

class FlattenOperation final : public Operation {
 public:
  ValueType declare(Declarations& /*declarations*/, std::span<const ValueType> inputs) override {
    return {.shape = {inputs[0].shape.elements()}};
  }
  OperationNeeds needs() const override { return {.passes_on = 1, .is_view = true}; }
  LayerPlan plan(const NodeView& /*node*/) const override { return {}; }
  void forward(const NodePass& /*node*/) const override {}
  void backward(const NodePass& /*node*/) const override {}
};

}  // namespace

extern const OperationKind flatten_operation;
const OperationKind flatten_operation{
    .name = "flatten",
    .summary = "the same elements as a single extent",
    .make = [](const Call&) -> std::unique_ptr<Operation> { return std::make_unique<FlattenOperation>(); }};

}  // namespace lockstep::model
