/// \file
/// "slice": a part of a value along one extent.
#include <stdexcept>
#include <vector>

#include <fmt/format.h>

#include "model/graph/strides.hpp"
#include "model/operations/plain_operation.hpp"

namespace lockstep::model {

namespace {

class SliceOperation final : public PlainOperation {
 public:
  explicit SliceOperation(const Call& call)
      : axis_(call.get<std::int64_t>("axis")),
        begin_(call.get<std::int64_t>("begin")),
        step_(call.get<std::int64_t>("step")),
        end_(call.find<std::int64_t>("end")) {}

  ValueType declare(Declarations& /*declarations*/, std::span<const ValueType> inputs) override {
    const Shape& in = inputs[0].shape;
    const std::size_t axis = extent_of(axis_, in);
    const std::int64_t extent = in.extents()[axis];
    const auto from_first = [&](std::int64_t place) { return place < 0 ? place + extent : place; };
    const std::int64_t begin = from_first(begin_), end = from_first(end_.value_or(extent));
    if (begin < 0 || end > extent || begin >= end) {
      throw std::invalid_argument(
          fmt::format("takes {} to {} of an extent of {} of {}: it must begin before it ends, "
                      "within the extent",
                      begin_, end_.value_or(extent), extent, to_string(in)));
    }
    std::vector<std::int64_t> extents(in.extents().begin(), in.extents().end());
    extents[axis] = (end - begin + step_ - 1) / step_;
    const Shape out(extents);
    const auto from = steps_of(in), to = steps_of(out);
    const std::size_t first = Shape::kMaxExtents - in.count();
    for (std::size_t i = 0; i < in.count(); ++i) {
      copy_.extents[first + i] = extents[i];
      copy_.from_steps[first + i] = from[i] * (i == axis ? step_ : 1);
      copy_.to_steps[first + i] = to[i];
    }
    copy_.from_first = begin * from[axis];
    copy_.from_elements = in.elements();
    copy_.to_elements = out.elements();
    is_causal_ = axis > 0;
    return {.shape = out};
  }
  bool is_causal() const override { return is_causal_; }

  void forward(const NodePass& node) const override {
    node.pass.images().copy_strided(copy_, node.by_sample(node.in(), copy_.from_elements),
                                    node.by_sample(node.out(), copy_.to_elements));
  }

  void backward(const NodePass& node) const override {
    node.pass.backend.fill_zero(node.d_in());
    node.pass.images().copy_strided(copy_.reversed(), node.by_sample(node.d_out(), copy_.to_elements),
                                    node.by_sample(node.d_in(), copy_.from_elements));
  }

 private:
  std::int64_t axis_, begin_, step_;
  std::optional<std::int64_t> end_;
  StridedCopy copy_;
  bool is_causal_ = false;
};

}  // namespace

extern const OperationKind slice_operation;
const OperationKind slice_operation{
    .name = "slice",
    .summary = "a part of a value along one extent",
    .arguments = {{.name = "axis", .value = -1, .value_name = "N", .help = "the extent: 0 is the first, -1 the last"},
                  {.name = "begin", .value = 0, .value_name = "N", .help = "first index; below 0 from the end"},
                  {.name = "end",
                   .value = 0,
                   .value_name = "N",
                   .help = "index behind the last; by default all that follow",
                   .automatic = true},
                  {.name = "step", .value = 1, .value_name = "N", .help = "every N-th index", .at_least = 1}},
    .make = [](const Call& call) -> std::unique_ptr<Operation> { return std::make_unique<SliceOperation>(call); }};

}  // namespace lockstep::model
