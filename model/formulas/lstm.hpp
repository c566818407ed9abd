/// \file
/// One unit of an LSTM over one step (the formulas of Lstm in sequence_operations.hpp), forward and backward.
#pragma once

#include "model/formulas/gate_functions.hpp"
#include "model/formulas/host_device.hpp"

namespace lockstep::model::formulas {

/// The four gates of a unit, in the order of the columns of a tensor of gates.
template <class T>
struct LstmGates {
  T input, forget, cell, output;
};

/// Stores the gates of unit k, one in each of four rows.
template <class T, int kUnits>
LOCKSTEP_HOST_DEVICE void put_gates(const LstmGates<T>& gates, int k, T (&rows)[4][kUnits]) {
  rows[0][k] = gates.input;
  rows[1][k] = gates.forget;
  rows[2][k] = gates.cell;
  rows[3][k] = gates.output;
}

template <class T>
struct LstmState {
  T cell, hidden;
};

/// Turns sums into gates.
template <class T, class Functions = GateFunctions>
LOCKSTEP_HOST_DEVICE LstmGates<T> lstm_activate(const LstmGates<T>& z) {
  return {Functions::sigmoid(z.input), Functions::sigmoid(z.forget), Functions::tanh(z.cell),
          Functions::sigmoid(z.output)};
}

/// Returns the state of the unit after the step.
template <class T, class Functions = GateFunctions>
LOCKSTEP_HOST_DEVICE LstmState<T> lstm_step(const LstmGates<T>& gates, T cell_before) {
  const T cell = gates.forget * cell_before + gates.input * gates.cell;
  return {cell, gates.output * Functions::tanh(cell)};
}

/// Results of a backward step: gradients of the gates' sums before activation, and of the cell before the step.
template <class T>
struct LstmGradients {
  LstmGates<T> sums;
  T cell_before;
};

/// d_hidden: total gradient of h(t), from the next layer and the next step. d_cell: gradient of c(t) from the next
/// step.
template <class T, class Functions = GateFunctions>
LOCKSTEP_HOST_DEVICE LstmGradients<T> lstm_step_back(const LstmGates<T>& gates, T cell_before, T cell, T d_hidden,
                                                     T d_cell) {
  const T shown = Functions::tanh(cell);
  const T d = d_cell + d_hidden * gates.output * (1 - shown * shown);
  return {{d * gates.cell * (gates.input * (1 - gates.input)), d * cell_before * (gates.forget * (1 - gates.forget)),
           d * gates.input * (1 - gates.cell * gates.cell), d_hidden * shown * (gates.output * (1 - gates.output))},
          d * gates.forget};
}

}  // namespace lockstep::model::formulas
