/// \file
/// "reshape": the same elements in another shape.
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model/graph/operation.hpp"

namespace lockstep::model {

namespace {

class ReshapeOperation final : public Operation {
 public:
  explicit ReshapeOperation(const Call& call) : extents_(call.get<Numbers>("shape")) {}

  ValueType declare(Declarations& /*declarations*/, std::span<const ValueType> inputs) override {
    const Shape& in = inputs[0].shape;
    const auto refuse = [&](const char* remedy) {
      throw std::invalid_argument(fmt::format("makes {} of {}: {}", fmt::join(extents_, "x"), to_string(in), remedy));
    };
    std::int64_t known = 1, open = -1;
    for (std::size_t i = 0; i < extents_.size(); ++i) {
      if (extents_[i] == -1) {
        if (open >= 0) refuse("one extent may be -1");
        open = static_cast<std::int64_t>(i);
      } else if (extents_[i] < 1 || extents_[i] > in.elements() / known) {
        refuse("the elements must be as many");
      } else {
        known *= extents_[i];
      }
    }
    if (open >= 0) {
      if (in.elements() % known != 0) refuse("no extent makes the elements as many");
      extents_[static_cast<std::size_t>(open)] = in.elements() / known;
    } else if (known != in.elements()) {
      refuse("the elements must be as many");
    }
    is_causal_ = extents_.size() > 1 && extents_[0] == in.extents()[0];
    return {.shape = Shape(extents_)};
  }
  bool is_causal() const override { return is_causal_; }
  OperationNeeds needs() const override { return {.passes_on = 1, .is_view = true}; }
  LayerPlan plan(const NodeView& /*node*/) const override { return {}; }
  void forward(const NodePass& /*node*/) const override {}
  void backward(const NodePass& /*node*/) const override {}

 private:
  Numbers extents_;
  bool is_causal_ = false;
};

}  // namespace

extern const OperationKind reshape_operation;
const OperationKind reshape_operation{
    .name = "reshape",
    .summary = "the same elements in another shape",
    .arguments = {{.name = "shape",
                   .value = Numbers{-2},
                   .value_name = "N,N",
                   .help = "extents, the channels last; -1: what is left",
                   .at_least = -1}},
    .make = [](const Call& call) -> std::unique_ptr<Operation> { return std::make_unique<ReshapeOperation>(call); }};

}  // namespace lockstep::model
