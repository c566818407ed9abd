/// \file
/// "transpose": permutes the extents of a value.
#include <stdexcept>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model/graph/strides.hpp"
#include "model/operations/plain_operation.hpp"

namespace lockstep::model {

namespace {

class TransposeOperation final : public PlainOperation {
 public:
  explicit TransposeOperation(const Call& call) : order_(call.get<Numbers>("order")) {}

  ValueType declare(Declarations& /*declarations*/, std::span<const ValueType> inputs) override {
    const Shape& in = inputs[0].shape;
    std::vector<bool> taken(in.count());
    std::vector<std::int64_t> extents;
    bool is_order = order_.size() == in.count();
    for (const std::int64_t axis : order_) {
      is_order = is_order && axis >= 0 && axis < static_cast<std::int64_t>(in.count()) &&
                 !taken[static_cast<std::size_t>(axis)];
      if (!is_order) break;
      taken[static_cast<std::size_t>(axis)] = true;
      extents.push_back(in.extents()[static_cast<std::size_t>(axis)]);
    }
    if (!is_order) {
      throw std::invalid_argument(
          fmt::format("puts the extents of {} in the order {}: each of 0 to {} must be in it "
                      "once",
                      to_string(in), fmt::join(order_, ","), in.count() - 1));
    }
    const Shape out(extents);
    const auto from = steps_of(in), to = steps_of(out);
    const std::size_t first = Shape::kMaxExtents - in.count();
    for (std::size_t i = 0; i < in.count(); ++i) {
      copy_.extents[first + i] = extents[i];
      copy_.from_steps[first + i] = from[static_cast<std::size_t>(order_[i])];
      copy_.to_steps[first + i] = to[i];
    }
    copy_.from_elements = copy_.to_elements = in.elements();
    return {.shape = out};
  }

  bool is_causal() const override { return order_[0] == 0; }

  void forward(const NodePass& node) const override { copy(node, copy_, node.in(), node.out()); }

  void backward(const NodePass& node) const override { copy(node, copy_.reversed(), node.d_out(), node.d_in()); }

 private:
  static void copy(const NodePass& node, const StridedCopy& how, const Tensor& from, const Tensor& to) {
    node.pass.images().copy_strided(how, node.by_sample(from, how.from_elements), node.by_sample(to, how.to_elements));
  }

  Numbers order_;
  StridedCopy copy_;
};

}  // namespace

extern const OperationKind transpose_operation;
const OperationKind transpose_operation{
    .name = "transpose",
    .summary = "the extents of a value in another order",
    .arguments = {{.name = "order",
                   .value = Numbers{-1},
                   .value_name = "N,N",
                   .help = "for each extent of the output that of the input, from 0 on",
                   .at_least = 0}},
    .make = [](const Call& call) -> std::unique_ptr<Operation> { return std::make_unique<TransposeOperation>(call); }};

}  // namespace lockstep::model
