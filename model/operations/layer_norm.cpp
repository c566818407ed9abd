/// \file
/// "layer-norm": normalises each row of the last extent. After a sum of two values it also computes the sum, in one
/// pass over memory.
#include "model/graph/operation.hpp"

namespace lockstep::model {

namespace {

class LayerNormOperation final : public Operation {
 public:
  explicit LayerNormOperation(const Call&) {}

  ValueType declare(Declarations& declarations, std::span<const ValueType> inputs) override {
    const Shape& shape = inputs[0].shape;
    const auto declare_part = [&](std::string name, double value) {
      declarations.parameter({.name = std::move(name),
                              .shape = {shape.last()},
                              .initializer = {Initializer::Scheme::constant, value},
                              .decay = Decay::no});
    };
    declare_part("scale", 1);
    declare_part("shift", 0);
    const ActivationSpec statistics{.name = "", .rows = shape.places(), .columns = 1, .holds = Holds::statistics};
    declarations.saved(statistics);
    declarations.saved(statistics);
    return {.shape = shape, .order = inputs[0].order};
  }

  OperationNeeds needs() const override {
    return {.reads_inputs = 1,
            .adds = 1,
            .adds_in_place = true,
            .always_writes = 1,
            .makes_sum = true,
            .narrow_output = true};
  }
  bool takes_positions() const override { return true; }

  LayerPlan plan(const NodeView& node) const override {
    return {.name = node.name,
            .description = "layer norm",
            .parameters = 2 * node.output.shape.last(),
            .activation_elements = node.output.shape.elements()};
  }

  void forward(const NodePass& node) const override {
    const Tensor sum = node.in(), first = node.addend(0), second = node.addend(1);
    const bool makes_sum = first.present();
    node.pass.sequences().layer_norm_forward({.x = makes_sum ? second : sum,
                                              .residual = first,
                                              .scale = node.weight(kScale),
                                              .shift = node.weight(kShift),
                                              .sum = makes_sum ? sum : Tensor{},
                                              .mean = node.saved(kMean),
                                              .inverse = node.saved(kInverse),
                                              .y = node.out()});
  }

  void backward(const NodePass& node) const override {
    const Tensor past_norm = node.sum_of();
    node.pass.sequences().layer_norm_backward({.x = node.in(),
                                               .scale = node.weight(kScale),
                                               .mean = node.saved(kMean),
                                               .inverse = node.saved(kInverse),
                                               .d_y = node.d_out(),
                                               .d_residual = past_norm,
                                               .d_scale = node.gradient(kScale),
                                               .d_shift = node.gradient(kShift),
                                               .d_x = past_norm.present() ? past_norm : node.d_in()},
                                              node.accumulate());
  }

 private:
  static constexpr std::size_t kScale = 0, kShift = 1;   // parameters
  static constexpr std::size_t kMean = 0, kInverse = 1;  // saved
};

}  // namespace

extern const OperationKind layer_norm_operation;
const OperationKind layer_norm_operation{
    .name = "layer-norm",
    .summary = "normalises each row of the last extent",
    .rows = ReadsRows::either,
    .make = [](const Call& call) -> std::unique_ptr<Operation> { return std::make_unique<LayerNormOperation>(call); }};

}  // namespace lockstep::model
