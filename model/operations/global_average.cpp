/// \file
/// "global-average": the mean of each channel over all places.
#include "model/graph/windows.hpp"
#include "model/operations/plain_operation.hpp"

namespace lockstep::model {

namespace {

class GlobalAverageOperation final : public PlainOperation {
 public:
  ValueType declare(Declarations& /*declarations*/, std::span<const ValueType> inputs) override {
    in_ = image_of_places(inputs[0].shape, "a global average");
    return {.shape = {in_.channels}};
  }
  OperationNeeds needs() const override { return {.image_inputs = 1, .image_output = true}; }
  void forward(const NodePass& node) const override {
    node.pass.images().global_average_forward(in_, node.by_sample(node.in(), in_.elements()), node.out());
  }
  void backward(const NodePass& node) const override {
    node.pass.images().global_average_backward(in_, node.d_out(), node.by_sample(node.d_in(), in_.elements()));
  }

 private:
  ImageShape in_;
};

}  // namespace

extern const OperationKind global_average_operation;
const OperationKind global_average_operation{
    .name = "global-average",
    .summary = "the mean of each channel",
    .make = [](const Call&) -> std::unique_ptr<Operation> { return std::make_unique<GlobalAverageOperation>(); }};

}  // namespace lockstep::model
