/// \file
/// Selects the trained tensors of a network and their learning rates, by patterns in the options.
#pragma once

#include <string>

#include "app/options/train_options.hpp"
#include "model/network.hpp"

namespace lockstep::app {

/// Freezes the tensors that the options name, and sets the learning rates of the others. Throws UsageError if a pattern
/// matches nothing (the message has the nearest names), if a learning rate applies only to frozen tensors, if a batch
/// normalisation is frozen in part, or if nothing is left to train.
void apply_tuning(const TuningOptions& options, model::Network& network);

/// Returns text for the plan: "trained: 650 of 272,474 parameters; frozen: stem/*, stage_*" and the learning rates, one
/// line each; "" if all tensors are trained with the same learning rate.
std::string format_tuning(const TuningOptions& options, const model::Network& network);

}  // namespace lockstep::app
