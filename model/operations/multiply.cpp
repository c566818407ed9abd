/// \file
/// "multiply": the product of two values of one shape, or of a value and a factor per channel (squeeze and excitation).
#include <stdexcept>

#include <fmt/format.h>

#include "model/operations/plain_operation.hpp"

namespace lockstep::model {

namespace {

class MultiplyOperation final : public PlainOperation {
 public:
  ValueType declare(Declarations& /*declarations*/, std::span<const ValueType> inputs) override {
    const Shape &first = inputs[0].shape, &second = inputs[1].shape;
    if (first != second && second != Shape{first.last()}) {
      throw std::invalid_argument(fmt::format("multiplies {} by {}: they must have one shape, or the second be {}",
                                              to_string(first), to_string(second), first.last()));
    }
    is_causal_ = first == second;
    return inputs[0];
  }
  bool is_causal() const override { return is_causal_; }
  OperationNeeds needs() const override { return {.reads_inputs = 3}; }
  std::string describe(const NodeView& node) const override {
    return node.inputs[0].shape == node.inputs[1].shape ? "product of 2" : "by a number per channel";
  }
  void forward(const NodePass& node) const override { node.pass.images().multiply(node.in(0), node.in(1), node.out()); }
  void backward(const NodePass& node) const override {
    ImageOperations& images = node.pass.images();
    if (const Tensor d_b = node.d_in(1); d_b.present()) images.multiply_sums(node.in(0), node.d_out(), d_b);
    if (const Tensor d_a = node.d_in(0); d_a.present()) images.multiply(node.d_out(), node.in(1), d_a);
  }

 private:
  bool is_causal_ = false;
};

}  // namespace

extern const OperationKind multiply_operation;
const OperationKind multiply_operation{
    .name = "multiply",
    .summary = "the product of two values of one shape, or by a number per channel",
    .least_inputs = 2,
    .most_inputs = 2,
    .make = [](const Call&) -> std::unique_ptr<Operation> { return std::make_unique<MultiplyOperation>(); }};

}  // namespace lockstep::model
