/// \file
/// "global-max": the greatest value of each channel over all places.
#include "model/graph/windows.hpp"
#include "model/operations/plain_operation.hpp"

namespace lockstep::model {

namespace {

class GlobalMaxOperation final : public PlainOperation {
 public:
  ValueType declare(Declarations& /*declarations*/, std::span<const ValueType> inputs) override {
    in_ = image_of_places(inputs[0].shape, "a global maximum");
    return {.shape = {in_.channels}};
  }
  OperationNeeds needs() const override { return {.reads_inputs = 1, .reads_output = true}; }
  void forward(const NodePass& node) const override {
    node.pass.images().global_max_forward(in_, node.by_sample(node.in(), in_.elements()), node.out());
  }
  void backward(const NodePass& node) const override {
    node.pass.images().global_max_backward(in_, node.by_sample(node.in(), in_.elements()), node.out(), node.d_out(),
                                           node.by_sample(node.d_in(), in_.elements()));
  }

 private:
  ImageShape in_;
};

}  // namespace

extern const OperationKind global_max_operation;
const OperationKind global_max_operation{
    .name = "global-max",
    .summary = "the greatest value of each channel",
    .make = [](const Call&) -> std::unique_ptr<Operation> { return std::make_unique<GlobalMaxOperation>(); }};

}  // namespace lockstep::model
