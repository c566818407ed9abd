/// \file
/// "dense": y = act(x W + b) on the last extent, x [rows, inputs], W [inputs, units], b [units].
#include <fmt/format.h>

#include "model/graph/layer_activation.hpp"
#include "model/graph/operation.hpp"
#include "model/operations/dense_parameters.hpp"
#include "model/product_padding.hpp"

namespace lockstep::model {

namespace {

class DenseOperation final : public Operation {
 public:
  explicit DenseOperation(const Call& call)
      : call_(call),
        units_(call.get<std::int64_t>("units")),
        activation_(layer_activation(call.get<std::string>("activation"))) {}

  ValueType declare(Declarations& declarations, std::span<const ValueType> inputs) override {
    const Shape& in = inputs[0].shape;
    inputs_ = in.last();
    const bool padded = declarations.only_the_loss_reads() && activation_.is_none();
    declare_dense(declarations, call_, inputs_, padded ? padded_outputs(units_) - units_ : 0);
    if (activation_.gelu) declarations.saved({.name = "", .rows = in.places(), .columns = units_});
    return {
        .shape = in.with_last(units_), .order = inputs[0].order, .padded_columns = padded ? padded_outputs(units_) : 0};
  }

  OperationNeeds needs() const override {
    return {.reads_inputs = 1,
            .reads_output = activation_.fused != Activation::none,
            .overwrites_gradient = !activation_.is_none(),
            .adds_in_product = activation_.is_none(),
            .narrow_inputs = 1,
            .narrow_output = !activation_.gelu};
  }
  bool takes_positions() const override { return true; }

  LayerPlan plan(const NodeView& node) const override {
    const std::int64_t rows = node.output.shape.places();
    const double product = 2.0 * static_cast<double>(rows) * static_cast<double>(inputs_) * static_cast<double>(units_);
    return {.name = node.name,
            .description = fmt::format("{} -> {}{}", inputs_, units_, text_behind(activation_)),
            .parameters = inputs_ * units_ + units_,
            .activation_elements = (activation_.gelu ? 2 : 1) * rows * units_,
            .forward_flops = product,
            .backward_flops = node.backward_flops(product, kWeight),
            .products = {
                {.rows = rows, .inputs = inputs_, .outputs = units_, .stored_outputs = node.output.padded_columns}}};
  }

  void forward(const NodePass& node) const override {
    const Tensor y = node.out(), product = activation_.gelu ? node.saved(0) : y;
    if (const Tensor added = node.added(); added.present()) {
      return node.pass.backend.linear_add_forward(node.in(), node.weight(kWeight), node.vector(kBias, y.columns), added,
                                                  y);
    }
    node.pass.backend.linear_forward(node.in(), node.weight(kWeight), node.vector(kBias, product.columns),
                                     activation_.fused, product);
    if (activation_.gelu) node.pass.sequences().gelu_forward(product, {}, y);
  }

  void backward(const NodePass& node) const override {
    const Tensor d_y = node.d_out();
    if (activation_.gelu) node.pass.sequences().gelu_backward(node.saved(0), d_y, node.accumulate(), {});
    node.pass.backend.linear_backward({.x = node.in(),
                                       .w = node.weight(kWeight),
                                       .y = node.out(),
                                       .d_y = d_y,
                                       .d_w = node.gradient(kWeight),
                                       .d_bias = node.vector_gradient(kBias, d_y.columns),
                                       .d_x = node.d_in()},
                                      activation_.fused, node.accumulate());
  }

 private:
  static constexpr std::size_t kWeight = 0, kBias = 1;

  Call call_;
  std::int64_t inputs_ = 0, units_;
  LayerActivation activation_;
};

}  // namespace

extern const OperationKind dense_operation;
const OperationKind dense_operation{
    .name = "dense",
    .summary = "a product with a trained matrix, over the last extent",
    .arguments = {{.name = "units", .value = 0, .value_name = "N", .help = "outputs", .at_least = 1},
                  call_activation(),
                  {.name = "init", .value = Initializers{}, .value_name = "", .help = "weights", .automatic = true},
                  {.name = "bias-init", .value = Initializers{}, .value_name = "", .help = "biases", .automatic = true},
                  {.name = "decay", .value = true, .value_name = "", .help = "the weights take part in weight decay"}},
    .rows = ReadsRows::either,
    .make = [](const Call& call) -> std::unique_ptr<Operation> { return std::make_unique<DenseOperation>(call); }};

}  // namespace lockstep::model
