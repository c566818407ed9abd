/// \file
/// "max-pool": the maximum of each window of each channel. Saves its position, one byte per output.
#include <stdexcept>

#include <fmt/format.h>

#include "model/graph/windows.hpp"
#include "model/operations/plain_operation.hpp"

namespace lockstep::model {

namespace {

class MaxPoolOperation final : public PlainOperation {
 public:
  explicit MaxPoolOperation(const Call& call) : call_(call) {}

  ValueType declare(Declarations& declarations, std::span<const ValueType> inputs) override {
    directions_ = directions_of(inputs[0].shape, "a pool");
    shape_ = pool_of(call_, inputs[0].shape);
    if (shape_.window.positions() > kMaxPoolPositions) {
      throw std::invalid_argument(
          fmt::format("has a window of {} places: a greatest value is looked for among at most "
                      "{} (16x16, or 6x6x6)",
                      shape_.window.positions(), kMaxPoolPositions));
    }
    declarations.saved({.name = "", .columns = shape_.out.elements(), .holds = Holds::choices});
    return {.shape = shape_of_places(shape_.out, directions_)};
  }

  OperationNeeds needs() const override { return {.narrow_inputs = 1, .narrow_output = true}; }

  std::string describe(const NodeView& node) const override {
    return fmt::format("{} -> {}, maximum of {}", to_string(node.inputs[0].shape), to_string(node.output.shape),
                       window_text(shape_.window, directions_));
  }

  void forward(const NodePass& node) const override {
    node.pass.images().max_pool_forward(shape_, node.by_sample(node.in(), shape_.in.elements()),
                                        node.by_sample(node.out(), shape_.out.elements()), node.saved(0));
  }

  void backward(const NodePass& node) const override {
    node.pass.images().max_pool_backward(shape_, node.saved(0), node.by_sample(node.d_out(), shape_.out.elements()),
                                         node.by_sample(node.d_in(), shape_.in.elements()));
  }

 private:
  Call call_;
  std::size_t directions_ = 0;
  Pool shape_{};
};

}  // namespace

extern const OperationKind max_pool_operation;
const OperationKind max_pool_operation{
    .name = "max-pool",
    .summary = "the greatest value in each window of each channel",
    .arguments = {size_argument("window"), pool_stride_argument(), padding_argument()},
    .make = [](const Call& call) -> std::unique_ptr<Operation> { return std::make_unique<MaxPoolOperation>(call); }};

}  // namespace lockstep::model
