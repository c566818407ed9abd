/// \file
/// The trained tensors of a network: patterns of options become parameters.
#pragma once

#include <string>

#include "app/options/train_options.hpp"
#include "model/network.hpp"

namespace lockstep::app {

/// Freezes the tensors that the options name, and sets the learning rates of the others. Throws UsageError for a
/// pattern that matches nothing (with the nearest names), for a rate of frozen tensors alone, for a batch normalisation
/// that is frozen in part, and if nothing is left to train.
void apply_tuning(const TuningOptions& options, model::Network& network);

/// For the plan: "trained: 650 of 272,474 parameters; frozen: stem/*, stage_*" and the learning rates, a line each; ""
/// if everything is trained alike.
std::string format_tuning(const TuningOptions& options, const model::Network& network);

}  // namespace lockstep::app
