/// \file
/// "constant": a trained value, equal for each sample, such as a class token or learnt queries.
#include <stdexcept>

#include <fmt/format.h>

#include "model/graph/operation.hpp"

namespace lockstep::model {

namespace {

class ConstantOperation final : public Operation {
 public:
  explicit ConstantOperation(const Call& call)
      : shape_(call.get<Numbers>("shape")),
        initializer_(
            call.initializer("init").value_or(Initializer{.scheme = Initializer::Scheme::normal, .value = 0.02})) {}

  /// The input only provides the batch size.
  ValueType declare(Declarations& declarations, std::span<const ValueType> /*inputs*/) override {
    declarations.parameter({.name = "value",
                            .shape = {shape_.places(), shape_.last()},
                            .initializer = initializer_,
                            .fan_in = shape_.places(),
                            .fan_out = shape_.last()});
    return {.shape = shape_};
  }

  OperationNeeds needs() const override { return {}; }
  bool is_causal() const override { return true; }

  LayerPlan plan(const NodeView& node) const override {
    return {.name = node.name,
            .description = to_string(shape_),
            .parameters = shape_.elements(),
            .activation_elements = shape_.elements()};
  }

  /// Computes the value as a bias that is added to zeros, with a whole sample as a row.
  void forward(const NodePass& node) const override {
    node.pass.backend.fill_zero(node.out());
    node.pass.images().bias_forward(node.vector(0, shape_.elements()), Activation::none,
                                    node.by_sample(node.out(), shape_.elements()));
  }
  void backward(const NodePass& node) const override {
    if (const Tensor d_in = node.d_in(); d_in.present()) node.pass.backend.fill_zero(d_in);
    node.pass.images().bias_backward(Activation::none, {}, node.by_sample(node.d_out(), shape_.elements()),
                                     node.accumulate(), node.vector_gradient(0, shape_.elements()));
  }

 private:
  Shape shape_;
  Initializer initializer_;
};

}  // namespace

extern const OperationKind constant_operation;
const OperationKind constant_operation{
    .name = "constant",
    .summary = "a trained value, the same for each sample",
    .arguments = {{.name = "shape", .value = Numbers{0}, .value_name = "N,N", .help = "its extents", .at_least = 1},
                  {.name = "init", .value = Initializers{}, .value_name = "", .help = "weights", .automatic = true}},
    .make = [](const Call& call) -> std::unique_ptr<Operation> { return std::make_unique<ConstantOperation>(call); }};

}  // namespace lockstep::model
