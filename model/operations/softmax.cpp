/// \file
/// "softmax": along the last extent. For use within a network: the loss of classes applies its own softmax.
#include <fmt/format.h>

#include "model/operations/plain_operation.hpp"

namespace lockstep::model {

namespace {

class SoftmaxOperation final : public PlainOperation {
 public:
  ValueType declare(Declarations& /*declarations*/, std::span<const ValueType> inputs) override {
    is_causal_ = inputs[0].shape.count() > 1;
    return inputs[0];
  }
  bool is_causal() const override { return is_causal_; }
  OperationNeeds needs() const override { return {.reads_output = true, .in_place = 1, .gradient_in_place = 1}; }
  std::string describe(const NodeView& node) const override { return fmt::format("over {}", node.output.shape.last()); }
  void forward(const NodePass& node) const override { node.pass.images().softmax_forward(node.in(), node.out()); }
  void backward(const NodePass& node) const override {
    node.pass.images().softmax_backward(node.out(), node.d_out(), node.d_in());
  }

 private:
  bool is_causal_ = false;
};

}  // namespace

extern const OperationKind softmax_operation;
const OperationKind softmax_operation{
    .name = "softmax",
    .summary = "shares of 1 along the last extent",
    .make = [](const Call&) -> std::unique_ptr<Operation> { return std::make_unique<SoftmaxOperation>(); }};

}  // namespace lockstep::model
