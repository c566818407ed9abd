/// \file
/// "concatenate": joins values along one extent.
#include <stdexcept>
#include <vector>

#include <fmt/format.h>

#include "model/graph/strides.hpp"
#include "model/operations/plain_operation.hpp"

namespace lockstep::model {

namespace {

class ConcatenateOperation final : public PlainOperation {
 public:
  explicit ConcatenateOperation(const Call& call) : axis_(call.get<std::int64_t>("axis")) {}

  ValueType declare(Declarations& /*declarations*/, std::span<const ValueType> inputs) override {
    const Shape& first = inputs[0].shape;
    const std::size_t axis = extent_of(axis_, first);
    is_last_ = axis + 1 == first.count();
    is_causal_ = axis > 0;
    std::vector<std::int64_t> extents(first.extents().begin(), first.extents().end());
    extents[axis] = 0;
    for (const ValueType& input : inputs) {
      const Shape& shape = input.shape;
      bool fits = shape.count() == first.count();
      for (std::size_t i = 0; fits && i < first.count(); ++i) {
        fits = i == axis || shape.extents()[i] == first.extents()[i];
      }
      if (!fits) {
        throw std::invalid_argument(fmt::format("joins {} and {}: they may differ in the {} alone", to_string(first),
                                                to_string(shape), is_last_ ? "last extent" : "extent of the axis"));
      }
      extents[axis] += shape.extents()[axis];
    }
    const Shape out(extents);
    const auto to = steps_of(out);
    std::int64_t place = 0;
    for (const ValueType& input : inputs) {
      StridedCopy& copy = copies_.emplace_back();
      const auto from = steps_of(input.shape);
      const std::size_t unused = Shape::kMaxExtents - out.count();
      for (std::size_t i = 0; i < out.count(); ++i) {
        copy.extents[unused + i] = input.shape.extents()[i];
        copy.from_steps[unused + i] = from[i];
        copy.to_steps[unused + i] = to[i];
      }
      copy.to_first = place * to[axis];
      copy.from_elements = input.shape.elements();
      copy.to_elements = out.elements();
      place += input.shape.extents()[axis];
    }
    return {.shape = out};
  }
  bool is_causal() const override { return is_causal_; }

  OperationNeeds needs() const override {
    if (!is_last_) return {};
    return {.narrow_inputs = (std::uint32_t{1} << copies_.size()) - 1, .narrow_output = true, .narrow_alike = true};
  }

  std::string describe(const NodeView& node) const override {
    return fmt::format("{} values -> {}", copies_.size(), to_string(node.output.shape));
  }

  void forward(const NodePass& node) const override {
    for (std::size_t i = 0; i < copies_.size(); ++i) {
      const StridedCopy& copy = copies_[i];
      const Tensor in = node.in(i), out = node.out();
      if (is_last_) {
        node.pass.backend.copy_columns(in, 0, out, copy.to_first, in.columns);
      } else {
        node.pass.images().copy_strided(copy, node.by_sample(in, copy.from_elements),
                                        node.by_sample(out, copy.to_elements));
      }
    }
  }

  void backward(const NodePass& node) const override {
    for (std::size_t i = 0; i < copies_.size(); ++i) {
      const Tensor d_in = node.d_in(i), d_out = node.d_out();
      if (!d_in.present()) continue;
      if (is_last_) {
        node.pass.backend.copy_columns(d_out, copies_[i].to_first, d_in, 0, d_in.columns);
        continue;
      }
      const StridedCopy back = copies_[i].reversed();
      node.pass.images().copy_strided(back, node.by_sample(d_out, back.from_elements),
                                      node.by_sample(d_in, back.to_elements));
    }
  }

 private:
  std::int64_t axis_;
  bool is_last_ = true, is_causal_ = false;
  std::vector<StridedCopy> copies_;  ///< one per input
};

}  // namespace

extern const OperationKind concatenate_operation;
const OperationKind concatenate_operation{
    .name = "concatenate",
    .summary = "values side by side on one extent",
    .arguments = {{.name = "axis", .value = -1, .value_name = "N", .help = "the extent: 0 is the first, -1 the last"}},
    .least_inputs = 2,
    .most_inputs = 16,
    .make = [](const Call& call) -> std::unique_ptr<Operation> {
      return std::make_unique<ConcatenateOperation>(call);
    }};

}  // namespace lockstep::model
