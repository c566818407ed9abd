/// \file
/// "gru": gated recurrent units (Gru in sequence_operations.hpp), over series or embedded tokens.
#include "model/operations/recurrent_series.hpp"

namespace lockstep::model {

namespace {

struct GruCell {
  static constexpr const char* kName = "a gru";
  static constexpr std::int64_t kGates = 3;
  static constexpr bool kBiasOfState = true;
  struct Saved {
    std::size_t products = 0;
  };

  static Saved declare(Declarations& declarations, std::int64_t steps, std::int64_t units) {
    return {declarations.saved({.name = "", .rows = steps, .columns = kGates * units})};
  }
  static void forward(const NodePass& node, const Saved& saved, const RecurrentSteps& steps) {
    node.pass.sequences().gru_forward(shape(node, steps), {.gates = steps.gates,
                                                           .recurrent = steps.recurrent,
                                                           .bias = steps.bias,
                                                           .products = node.saved(saved.products),
                                                           .hidden = steps.hidden,
                                                           .places = steps.places});
  }
  static void backward(const NodePass& node, const Saved& saved, const RecurrentSteps& steps) {
    node.pass.sequences().gru_backward(shape(node, steps), {.gates = steps.gates,
                                                            .recurrent = steps.recurrent,
                                                            .products = node.saved(saved.products),
                                                            .hidden = steps.hidden,
                                                            .d_hidden = steps.d_hidden,
                                                            .places = steps.places});
  }
  static Tensor d_products(const NodePass& node, const Saved& saved, const Tensor& /*gates*/) {
    return node.saved(saved.products);
  }

 private:
  static Gru shape(const NodePass& node, const RecurrentSteps& steps) {
    return {.steps = steps.steps, .sequences = node.pass.batch, .hidden = steps.units};
  }
};

}  // namespace

extern const OperationKind gru_operation;
const OperationKind gru_operation{
    .name = "gru",
    .summary =
        "gated recurrent units over the steps of a series, or over tokens, where the state goes on from batch to "
        "batch",
    .arguments = recurrent_arguments(),
    .most_inputs = 2,
    .token_inputs = 2,
    .rows = ReadsRows::steps,
    .make = [](const Call& call) -> std::unique_ptr<Operation> {
      return std::make_unique<RecurrentSeries<GruCell>>(call);
    }};

}  // namespace lockstep::model
