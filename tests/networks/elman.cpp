/// \file
/// "elman", a recurrent operation that the program itself does not have (Elman 1990, with one matrix for input and
/// state): h_t = tanh(U (x_t + h_{t-1}) + b). It shows that an operation is one file, as a network is (elman.yaml): the
/// program learns everything else from the OperationKind.
#include <vector>

#include <fmt/format.h>

#include "model/graph/operation.hpp"

namespace lockstep::model {

namespace {

class ElmanOperation final : public Operation {
 public:
  explicit ElmanOperation(const Call& call)
      : nonlinearity_(parse_activation(call.get<std::string>("nonlinearity"))),
        initializer_(call.initializer("init").value_or(Initializer{})) {}

  ValueType declare(Declarations& declarations, std::span<const ValueType> inputs) override {
    steps_ = inputs[0].shape.places();
    width_ = inputs[0].shape.last();
    declarations.parameter({.name = "matrix",
                            .shape = {width_, width_},
                            .initializer = initializer_,
                            .fan_in = width_,
                            .fan_out = width_});
    declarations.parameter({.name = "bias",
                            .shape = {width_},
                            .initializer = {},
                            .fan_in = width_,
                            .fan_out = width_,
                            .decay = Decay::no});
    declarations.saved({.name = "", .rows = steps_, .columns = width_});
    declarations.state({.name = "elman/hidden", .columns = width_});
    return {.shape = inputs[0].shape, .order = RowOrder::time_major};
  }

  bool is_causal() const override { return true; }
  OperationNeeds needs() const override {
    return {.reads_output = true, .overwrites_gradient = true, .always_writes = 1};
  }

  LayerPlan plan(const NodeView& node) const override {
    const double product = 2.0 * static_cast<double>(steps_ * width_ * width_);
    return {.name = node.name,
            .description = fmt::format("{} -> {}, {} steps", width_, width_, steps_),
            .parameters = width_ * width_ + width_,
            .activation_elements = 2 * steps_ * width_,
            .forward_flops = product,
            .backward_flops = 2 * product};
  }

  void forward(const NodePass& node) const override {
    Backend& backend = node.pass.backend;
    const Tensor x = node.in(), inputs = node.saved(0), hidden = node.out(), state = node.state(0);
    for (std::int64_t t = 0; t < steps_; ++t) {
      const Tensor input = step(node, inputs, t);
      backend.cast(t == 0 ? state : step(node, hidden, t - 1), input);
      backend.add(step(node, x, t), input);
      backend.linear_forward(input, node.weight(0), node.weight(1), nonlinearity_, step(node, hidden, t));
    }
    backend.cast(step(node, hidden, steps_ - 1), state);
  }

  void backward(const NodePass& node) const override {
    const Tensor d_hidden = node.d_out(), d_inputs = node.d_in();
    for (std::int64_t t = steps_; t-- > 0;) {
      node.pass.backend.linear_backward({.x = step(node, node.saved(0), t),
                                         .w = node.weight(0),
                                         .y = step(node, node.out(), t),
                                         .d_y = step(node, d_hidden, t),
                                         .d_w = node.gradient(0),
                                         .d_bias = node.gradient(1),
                                         .d_x = step(node, d_inputs, t)},
                                        nonlinearity_, t + 1 == steps_ ? node.accumulate() : Accumulate::yes);
      if (t > 0) node.pass.backend.add(step(node, d_inputs, t), step(node, d_hidden, t - 1));
    }
  }

 private:
  /// Rows of step `t`: one per sample.
  static Tensor step(const NodePass& node, const Tensor& tensor, std::int64_t t) {
    return tensor.row_range(t * node.pass.batch, node.pass.batch);
  }

  std::int64_t steps_ = 0, width_ = 0;
  Activation nonlinearity_;
  Initializer initializer_;
};

}  // namespace

extern const OperationKind elman_operation;
const OperationKind elman_operation{
    .name = "elman",
    .summary = "h_t = tanh(U (x_t + h_{t-1}) + b)",
    .arguments =
        {{.name = "nonlinearity", .value = "tanh", .value_name = "NAME", .help = "", .words = {"tanh", "sigmoid"}},
         {.name = "init", .value = Initializers{}, .value_name = "", .help = "weights", .automatic = true}},
    .rows = ReadsRows::time_major,
    .make = [](const Call& call) -> std::unique_ptr<Operation> { return std::make_unique<ElmanOperation>(call); }};

}  // namespace lockstep::model
