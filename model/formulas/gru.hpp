/// \file
/// One unit of a GRU over one step (the formulas of Gru in sequence_operations.hpp), forwards and back.
#pragma once

#include "model/formulas/gate_functions.hpp"
#include "model/formulas/host_device.hpp"

namespace lockstep::model::formulas {

/// The three gates of a unit, in the order of the columns of a tensor of gates; or what is added up before them.
template <class T>
struct GruGates {
  T reset, update, candidate;
};

/// Turns the sums of the input and the products with the state into gates.
template <class T, class Functions = GateFunctions>
LOCKSTEP_HOST_DEVICE GruGates<T> gru_activate(const GruGates<T>& inputs, const GruGates<T>& products) {
  const T reset = Functions::sigmoid(inputs.reset + products.reset);
  return {reset, Functions::sigmoid(inputs.update + products.update),
          Functions::tanh(inputs.candidate + reset * products.candidate)};
}

/// The unit's state after the step.
template <class T>
LOCKSTEP_HOST_DEVICE T gru_step(const GruGates<T>& gates, T before) {
  return gates.candidate + gates.update * (before - gates.candidate);
}

/// Results of a backward step: gradients of the inputs' sums and of the products, and the part of the gradient of the
/// state before that passes by the gates.
template <class T>
struct GruGradients {
  GruGates<T> inputs, products;
  T before;
};

/// product: that of the candidate. d: the whole gradient of h(t), from above and from the next step.
template <class T>
LOCKSTEP_HOST_DEVICE GruGradients<T> gru_step_back(const GruGates<T>& gates, T product, T before, T d) {
  const auto& [reset, update, candidate] = gates;
  const T d_candidate = d * (1 - update) * (1 - candidate * candidate);
  const T d_reset = d_candidate * product * (reset * (1 - reset));
  const T d_update = d * (before - candidate) * (update * (1 - update));
  return {{d_reset, d_update, d_candidate}, {d_reset, d_update, d_candidate * reset}, d * update};
}

}  // namespace lockstep::model::formulas
