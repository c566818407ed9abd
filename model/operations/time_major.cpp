/// \file
/// "time-major": reorders tokens for recurrent operations: the first positions of all samples come first. Rewrites
/// (model/graph/rewrites.hpp) add it after the network's input, where a row is one number.
#include "model/graph/operation.hpp"

namespace lockstep::model {

namespace {

class TimeMajorOperation final : public Operation {
 public:
  ValueType declare(Declarations& /*declarations*/, std::span<const ValueType> inputs) override {
    return {.shape = inputs[0].shape, .holds = Holds::tokens, .order = RowOrder::time_major};
  }
  bool is_causal() const override { return true; }
  OperationNeeds needs() const override { return {}; }
  LayerPlan plan(const NodeView& /*node*/) const override { return {}; }
  std::vector<LayerPlan> lines(const NodeView& /*node*/) const override { return {}; }
  void forward(const NodePass& node) const override {
    const Tensor out = node.out();
    node.pass.sequences().to_time_major(node.in(), out.reshaped(out.count(), 1));
  }
  void backward(const NodePass& /*node*/) const override {}
  void results(const std::string& /*name*/, const NodePass& /*node*/, const TakeResult& /*take*/) const override {}
};

}  // namespace

extern const OperationKind time_major_operation;
const OperationKind time_major_operation{
    .name = "time-major",
    .summary = "tokens in the order of their positions",
    .reads = Holds::tokens,
    .make = [](const Call&) -> std::unique_ptr<Operation> { return std::make_unique<TimeMajorOperation>(); }};

}  // namespace lockstep::model
