/// \file
/// "global-max": the maximum of each channel over all positions.
#include "model/graph/windows.hpp"
#include "model/operations/plain_operation.hpp"
#include "model/operations/series_lengths.hpp"

namespace lockstep::model {

namespace {

class GlobalMaxOperation final : public PlainOperation {
 public:
  ValueType declare(Declarations& /*declarations*/, std::span<const ValueType> inputs) override {
    in_ = image_of_places(inputs[0].shape, "a global maximum");
    if (inputs.size() > 1 && inputs[0].shape.count() != 2) {
      throw std::invalid_argument("reads lengths, which series have: steps x numbers");
    }
    if (reads_lengths(inputs, inputs[0].shape.places())) {
      series_ = SeriesPool(PaddedSeries::Pool::max, inputs[0].shape);
    }
    return {.shape = {in_.channels}};
  }
  OperationNeeds needs() const override {
    if (series_.is_used()) return {.reads_inputs = 3};
    return {.reads_inputs = 1, .reads_output = true};
  }
  void forward(const NodePass& node) const override {
    if (series_.is_used()) return series_.forward(node);
    node.pass.images().global_max_forward(in_, node.by_sample(node.in(), in_.elements()), node.out());
  }
  void backward(const NodePass& node) const override {
    if (series_.is_used()) return series_.backward(node);
    node.pass.images().global_max_backward(in_, node.by_sample(node.in(), in_.elements()), node.out(), node.d_out(),
                                           node.by_sample(node.d_in(), in_.elements()));
  }

 private:
  ImageShape in_;
  SeriesPool series_;
};

}  // namespace

extern const OperationKind global_max_operation;
const OperationKind global_max_operation{
    .name = "global-max",
    .summary = "the greatest value of each channel",
    .most_inputs = 2,
    .token_inputs = 2,
    .make = [](const Call&) -> std::unique_ptr<Operation> { return std::make_unique<GlobalMaxOperation>(); }};

}  // namespace lockstep::model
