/// \file
/// "upsample": every place several times, along all extents but the channels. It is the gradient of a sum over windows
/// that lie side by side, and its own gradient is such a sum.
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model/graph/windows.hpp"
#include "model/operations/plain_operation.hpp"

namespace lockstep::model {

namespace {

class UpsampleOperation final : public PlainOperation {
 public:
  explicit UpsampleOperation(const Call& call) : factor_(call.get<Numbers>("factor")) {}

  ValueType declare(Declarations& /*declarations*/, std::span<const ValueType> inputs) override {
    const std::size_t directions = directions_of(inputs[0].shape, "an upsampling");
    factor_ = for_directions(factor_, "factor", directions);
    const ImageShape small = image_of_places(inputs[0].shape, "an upsampling");
    std::vector<std::int64_t> extents(inputs[0].shape.extents().begin(), inputs[0].shape.extents().end());
    std::array<Sweep, 3> sweeps;
    for (std::size_t i = 0; i < directions; ++i) {
      extents[i] *= factor_[i];
      sweeps[sweeps.size() - directions + i] = {.size = factor_[i], .stride = factor_[i]};
    }
    const Shape large(extents);
    sums_ = {.pool = {.in = image_of_places(large, "an upsampling"),
                      .out = small,
                      .window = {sweeps[0], sweeps[1], sweeps[2]}},
             .divisor = AveragePool::Divisor::one};
    return {.shape = large};
  }

  std::string describe(const NodeView& node) const override {
    return fmt::format("{} -> {}, nearest", to_string(node.inputs[0].shape), to_string(node.output.shape));
  }

  void forward(const NodePass& node) const override {
    node.pass.images().average_pool_backward(sums_, node.by_sample(node.in(), sums_.pool.out.elements()),
                                             node.by_sample(node.out(), sums_.pool.in.elements()));
  }

  void backward(const NodePass& node) const override {
    node.pass.images().average_pool_forward(sums_, node.by_sample(node.d_out(), sums_.pool.in.elements()),
                                            node.by_sample(node.d_in(), sums_.pool.out.elements()));
  }

 private:
  Numbers factor_;
  AveragePool sums_{};
};

}  // namespace

extern const OperationKind upsample_operation;
const OperationKind upsample_operation{
    .name = "upsample",
    .summary = "every place several times",
    .arguments = {{.name = "factor",
                   .value = Numbers{0},
                   .value_name = "N,N",
                   .help = "how often: one number, or one for each direction",
                   .at_least = 1,
                   .below = 65536}},
    .make = [](const Call& call) -> std::unique_ptr<Operation> { return std::make_unique<UpsampleOperation>(call); }};

}  // namespace lockstep::model
