/// \file
/// "average-pool": the mean of each window of each channel.
#include <fmt/format.h>

#include "model/graph/windows.hpp"
#include "model/operations/plain_operation.hpp"

namespace lockstep::model {

namespace {

class AveragePoolOperation final : public PlainOperation {
 public:
  explicit AveragePoolOperation(const Call& call)
      : call_(call),
        divisor_(call.get<bool>("count-padding") ? AveragePool::Divisor::positions : AveragePool::Divisor::seen) {}

  ValueType declare(Declarations& /*declarations*/, std::span<const ValueType> inputs) override {
    directions_ = directions_of(inputs[0].shape, "a pool");
    shape_ = {.pool = pool_of(call_, inputs[0].shape), .divisor = divisor_};
    return {.shape = shape_of_places(shape_.pool.out, directions_)};
  }

  OperationNeeds needs() const override { return {.narrow_inputs = 1, .narrow_output = true}; }

  std::string describe(const NodeView& node) const override {
    return fmt::format("{} -> {}, mean of {}", to_string(node.inputs[0].shape), to_string(node.output.shape),
                       window_text(shape_.pool.window, directions_));
  }

  void forward(const NodePass& node) const override {
    node.pass.images().average_pool_forward(shape_, node.by_sample(node.in(), shape_.pool.in.elements()),
                                            node.by_sample(node.out(), shape_.pool.out.elements()));
  }

  void backward(const NodePass& node) const override {
    node.pass.images().average_pool_backward(shape_, node.by_sample(node.d_out(), shape_.pool.out.elements()),
                                             node.by_sample(node.d_in(), shape_.pool.in.elements()));
  }

 private:
  Call call_;
  AveragePool::Divisor divisor_;
  std::size_t directions_ = 0;
  AveragePool shape_{};
};

}  // namespace

extern const OperationKind average_pool_operation;
const OperationKind average_pool_operation{
    .name = "average-pool",
    .summary = "the mean of each window of each channel",
    .arguments = {size_argument("window"),
                  pool_stride_argument(),
                  padding_argument(),
                  {.name = "count-padding",
                   .value = false,
                   .value_name = "",
                   .help = "padding counts as zeros; otherwise the mean is that of the places that there are"}},
    .make = [](const Call& call) -> std::unique_ptr<Operation> {
      return std::make_unique<AveragePoolOperation>(call);
    }};

}  // namespace lockstep::model
