/// \file
/// One unit of a GRU over one step (the formulas of Gru in sequence_operations.hpp), forward and backward.
#pragma once

#include "model/formulas/gate_functions.hpp"
#include "model/formulas/host_device.hpp"

namespace lockstep::model::formulas {

/// The three gates of a unit, or their sums before activation, in the order of the columns of a tensor of gates.
template <class T>
struct GruGates {
  T reset, update, candidate;
};

/// Computes the gates from the sums of the input and the products with the state.
template <class T, class Functions = GateFunctions>
LOCKSTEP_HOST_DEVICE GruGates<T> gru_activate(const GruGates<T>& inputs, const GruGates<T>& products) {
  const T reset = Functions::sigmoid(inputs.reset + products.reset);
  return {reset, Functions::sigmoid(inputs.update + products.update),
          Functions::tanh(inputs.candidate + reset * products.candidate)};
}

/// Returns the state of the unit after the step.
template <class T>
LOCKSTEP_HOST_DEVICE T gru_step(const GruGates<T>& gates, T before) {
  return gates.candidate + gates.update * (before - gates.candidate);
}

/// Results of a backward step: gradients of the sums of the input and of the products, and the gradient of the previous
/// state without the part through the products.
template <class T>
struct GruGradients {
  GruGates<T> inputs, products;
  T before;
};

/// product: of the candidate (the third gate). d: the total gradient of h(t), from the next layer and the next step.
template <class T>
LOCKSTEP_HOST_DEVICE GruGradients<T> gru_step_back(const GruGates<T>& gates, T product, T before, T d) {
  const auto& [reset, update, candidate] = gates;
  const T d_candidate = d * (1 - update) * (1 - candidate * candidate);
  const T d_reset = d_candidate * product * (reset * (1 - reset));
  const T d_update = d * (before - candidate) * (update * (1 - update));
  return {{d_reset, d_update, d_candidate}, {d_reset, d_update, d_candidate * reset}, d * update};
}

}  // namespace lockstep::model::formulas
