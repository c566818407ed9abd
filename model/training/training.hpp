/// \file
/// The objects that train a network on one backend.
#pragma once

#include "model/model.hpp"
#include "model/state/parameter_state.hpp"
#include "model/state/step_status_buffer.hpp"
#include "model/training/optimizer.hpp"

namespace lockstep::model {

/// Members are in the order of construction: each uses those before it. One step: forward and backward of the batches,
/// the all-reduce of the gradients, Optimizer::finish_gradients(), StepStatusBuffer::report_loss(), the all-reduce of
/// the status, Optimizer::update().
struct Training {
  /// backend and network must outlive the object.
  Training(Backend& backend, const Network& network, const ModelOptions& options,
           const ParameterStateOptions& state_options)
      : parameters(backend, network.parameters(), state_options),
        model(backend, network, parameters, options),
        status(backend, {.sums_gradient_squares = !parameters.owned().whole()}),
        optimizer(backend, parameters, status, state_options.optimizer) {}
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  ParameterState parameters;
  Model model;
  StepStatusBuffer status;
  Optimizer optimizer;
};

}  // namespace lockstep::model
