/// \file
/// "response-norm": local response normalisation across the channels of a position (ResponseNormalization in
/// image_operations.hpp).
#include <fmt/format.h>

#include "model/operations/plain_operation.hpp"

namespace lockstep::model {

namespace {

class ResponseNormOperation final : public PlainOperation {
 public:
  ValueType declare(Declarations& /*declarations*/, std::span<const ValueType> inputs) override {
    elements_ = inputs[0].shape.elements();
    norm_.channels = inputs[0].shape.last();
    return inputs[0];
  }

  bool is_causal() const override { return true; }
  OperationNeeds needs() const override {
    return {.reads_inputs = 1,
            .reads_output = true,
            .gradient_in_place = 1,
            .narrow_inputs = 1,
            .narrow_output = true,
            .narrow_alike = true};
  }

  std::string describe(const NodeView& /*node*/) const override {
    return fmt::format("over {} channels", 2 * norm_.radius + 1);
  }

  void forward(const NodePass& node) const override {
    node.pass.images().response_normalization_forward(norm_, node.by_sample(node.in(), elements_),
                                                      node.by_sample(node.out(), elements_));
  }

  void backward(const NodePass& node) const override {
    const auto by_sample = [&](const Tensor& tensor) { return node.by_sample(tensor, elements_); };
    node.pass.images().response_normalization_backward(norm_, by_sample(node.in()), by_sample(node.out()),
                                                       by_sample(node.d_out()), by_sample(node.d_in()));
  }

 private:
  ResponseNormalization norm_;
  std::int64_t elements_ = 0;
};

}  // namespace

extern const OperationKind response_norm_operation;
const OperationKind response_norm_operation{
    .name = "response-norm",
    .summary = "local response normalisation across channels",
    .make = [](const Call&) -> std::unique_ptr<Operation> { return std::make_unique<ResponseNormOperation>(); }};

}  // namespace lockstep::model
