/// \file
/// What of a network is trained: patterns of options become parameters.
#pragma once

#include <string>

#include "app/options/train_options.hpp"
#include "model/network.hpp"

namespace lockstep::app {

/// Freezes what the options name, and gives the others their learning rates. Throws UsageError for a pattern that
/// matches nothing (with the nearest names), one that asks for a rate of frozen tensors alone, a batch normalisation
/// that is frozen in part, and where nothing is left to train.
void apply_tuning(const TuningOptions& options, model::Network& network);

/// For the plan: "trained: 650 of 272,474 parameters; frozen: stem/*, stage_*" and the learning rates, a line each; ""
/// where everything is trained alike.
std::string format_tuning(const TuningOptions& options, const model::Network& network);

}  // namespace lockstep::app
