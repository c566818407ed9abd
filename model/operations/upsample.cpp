/// \file
/// "upsample": enlarges a value by whole factors along all extents but the channels. Mode nearest repeats each
/// position: it is the gradient of a sum over adjacent windows, and its own gradient is such a sum. Mode linear
/// interpolates between positions.
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model/graph/windows.hpp"
#include "model/operations/plain_operation.hpp"

namespace lockstep::model {

namespace {

class UpsampleOperation final : public PlainOperation {
 public:
  explicit UpsampleOperation(const Call& call)
      : factor_(call.get<Numbers>("factor")), linear_(call.get<std::string>("mode") == "linear") {}

  ValueType declare(Declarations& /*declarations*/, std::span<const ValueType> inputs) override {
    const std::size_t directions = directions_of(inputs[0].shape, "an upsampling");
    factor_ = for_directions(factor_, "factor", directions);
    const ImageShape small = image_of_places(inputs[0].shape, "an upsampling");
    std::vector<std::int64_t> extents(inputs[0].shape.extents().begin(), inputs[0].shape.extents().end());
    std::array<Sweep, 3> sweeps;
    for (std::size_t i = 0; i < directions; ++i) {
      extents[i] *= factor_[i];
      if (linear_ && extents[i] > kMaxUpsampledExtent) {
        throw std::invalid_argument(
            fmt::format("makes {} places along one direction: {} are the most", extents[i], kMaxUpsampledExtent));
      }
      sweeps[sweeps.size() - directions + i] = {.size = factor_[i], .stride = factor_[i]};
    }
    const Shape large(extents);
    sums_ = {.pool = {.in = image_of_places(large, "an upsampling"),
                      .out = small,
                      .window = {sweeps[0], sweeps[1], sweeps[2]}},
             .divisor = AveragePool::Divisor::one};
    shape_ = {.in = small, .out = sums_.pool.in};
    return {.shape = large};
  }

  std::string describe(const NodeView& node) const override {
    return fmt::format("{} -> {}, {}", to_string(node.inputs[0].shape), to_string(node.output.shape),
                       linear_ ? "linear" : "nearest");
  }

  void forward(const NodePass& node) const override {
    ImageOperations& images = node.pass.images();
    const Tensor x = node.by_sample(node.in(), shape_.in.elements()),
                 y = node.by_sample(node.out(), shape_.out.elements());
    if (linear_) return images.linear_upsampling_forward(shape_, x, y);
    images.average_pool_backward(sums_, x, y);
  }

  void backward(const NodePass& node) const override {
    ImageOperations& images = node.pass.images();
    const Tensor d_y = node.by_sample(node.d_out(), shape_.out.elements()),
                 d_x = node.by_sample(node.d_in(), shape_.in.elements());
    if (linear_) return images.linear_upsampling_backward(shape_, d_y, d_x);
    images.average_pool_forward(sums_, d_y, d_x);
  }

 private:
  Numbers factor_;
  bool linear_;
  LinearUpsampling shape_{};
  AveragePool sums_{};  ///< its gradient is the forward of mode nearest
};

}  // namespace

extern const OperationKind upsample_operation;
const OperationKind upsample_operation{
    .name = "upsample",
    .summary = "a value several times as large",
    .arguments = {{.name = "factor",
                   .value = Numbers{0},
                   .value_name = "N,N",
                   .help = "how often: one number, or one for each direction",
                   .at_least = 1,
                   .below = 65536},
                  {.name = "mode",
                   .value = "nearest",
                   .value_name = "HOW",
                   .help = "every place several times, or linear interpolation between the centres of places",
                   .words = {"nearest", "linear"}}},
    .make = [](const Call& call) -> std::unique_ptr<Operation> { return std::make_unique<UpsampleOperation>(call); }};

}  // namespace lockstep::model
