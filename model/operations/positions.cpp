/// \file
/// "positions": adds a trained vector to each position of a value: y = x + table.
#include <fmt/format.h>

#include "model/graph/operation.hpp"

namespace lockstep::model {

namespace {

class PositionsOperation final : public Operation {
 public:
  explicit PositionsOperation(const Call& call)
      : initializer_(
            call.initializer("init").value_or(Initializer{.scheme = Initializer::Scheme::normal, .value = 0.02})) {}

  ValueType declare(Declarations& declarations, std::span<const ValueType> inputs) override {
    shape_ = inputs[0].shape;
    declarations.parameter({.name = "table",
                            .shape = {shape_.places(), shape_.last()},
                            .initializer = initializer_,
                            .fan_in = shape_.places(),
                            .fan_out = shape_.last()});
    return inputs[0];
  }

  bool is_causal() const override { return true; }
  OperationNeeds needs() const override { return {.passes_on = 1, .in_place = 1}; }

  LayerPlan plan(const NodeView& node) const override {
    return {.name = node.name,
            .description = fmt::format("{} positions of {}", shape_.places(), shape_.last()),
            .parameters = shape_.elements(),
            .activation_elements = shape_.elements()};
  }

  void forward(const NodePass& node) const override {
    if (node.out().data != node.in().data) node.pass.backend.cast(node.in(), node.out());
    node.pass.images().bias_forward(node.vector(0, shape_.elements()), Activation::none,
                                    node.by_sample(node.out(), shape_.elements()));
  }
  /// Computes the gradient like that of a bias, with a whole sample as a row.
  void backward(const NodePass& node) const override {
    node.pass.images().bias_backward(Activation::none, {}, node.by_sample(node.d_out(), shape_.elements()),
                                     node.accumulate(), node.vector_gradient(0, shape_.elements()));
  }

 private:
  Shape shape_{1};
  Initializer initializer_;
};

}  // namespace

extern const OperationKind positions_operation;
const OperationKind positions_operation{
    .name = "positions",
    .summary = "adds a trained vector to each place",
    .arguments = {{.name = "init", .value = Initializers{}, .value_name = "", .help = "weights", .automatic = true}},
    .make = [](const Call& call) -> std::unique_ptr<Operation> { return std::make_unique<PositionsOperation>(call); }};

}  // namespace lockstep::model
