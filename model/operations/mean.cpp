/// \file
/// "mean": the mean along one extent, which it removes. It is an average pool whose window is that extent.
#include <stdexcept>
#include <vector>

#include "model/graph/strides.hpp"
#include "model/operations/plain_operation.hpp"
#include "model/operations/series_lengths.hpp"

namespace lockstep::model {

namespace {

class MeanOperation final : public PlainOperation {
 public:
  explicit MeanOperation(const Call& call) : axis_(call.get<std::int64_t>("axis")) {}

  ValueType declare(Declarations& /*declarations*/, std::span<const ValueType> inputs) override {
    const Shape& in = inputs[0].shape;
    const std::size_t axis = extent_of(axis_, in);
    if (reads_lengths(inputs, in.extents()[0])) {
      if (axis != 0 || in.count() != 2) {
        throw std::invalid_argument(fmt::format(
            "reads {}, and a mean with lengths is that of the steps of a series: axis: 0 of steps x numbers",
            to_string(in)));
      }
      series_ = SeriesPool(PaddedSeries::Pool::mean, in);
      return {.shape = {in.last()}};
    }
    std::vector<std::int64_t> extents(in.extents().begin(), in.extents().end());
    const std::int64_t extent = extents[axis], behind = steps_of(in)[axis];
    extents.erase(extents.begin() + static_cast<std::ptrdiff_t>(axis));
    if (extents.empty()) extents.push_back(1);
    const std::int64_t before = in.elements() / extent / behind;
    pool_ = {.pool = {.in = {.height = before, .width = extent, .channels = behind},
                      .out = {.height = before, .width = 1, .channels = behind},
                      .window = {.width = {.size = extent, .stride = extent}}}};
    is_causal_ = axis > 0;
    return {.shape = Shape(extents)};
  }
  bool is_causal() const override { return is_causal_; }

  OperationNeeds needs() const override { return {.reads_inputs = series_.is_used() ? 2u : 0u}; }

  void forward(const NodePass& node) const override {
    if (series_.is_used()) return series_.forward(node);
    node.pass.images().average_pool_forward(pool_, node.by_sample(node.in(), pool_.pool.in.elements()),
                                            node.by_sample(node.out(), pool_.pool.out.elements()));
  }

  void backward(const NodePass& node) const override {
    if (series_.is_used()) return series_.backward(node);
    node.pass.images().average_pool_backward(pool_, node.by_sample(node.d_out(), pool_.pool.out.elements()),
                                             node.by_sample(node.d_in(), pool_.pool.in.elements()));
  }

 private:
  std::int64_t axis_;
  AveragePool pool_{};
  bool is_causal_ = false;
  SeriesPool series_;
};

}  // namespace

extern const OperationKind mean_operation;
const OperationKind mean_operation{
    .name = "mean",
    .summary = "the mean along one extent",
    .arguments = {{.name = "axis", .value = 0, .value_name = "N", .help = "the extent: 0 is the first, -1 the last"}},
    .most_inputs = 2,
    .token_inputs = 2,
    .make = [](const Call& call) -> std::unique_ptr<Operation> { return std::make_unique<MeanOperation>(call); }};

}  // namespace lockstep::model
