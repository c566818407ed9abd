/// \file
/// `lockstep train`: the main command.
#pragma once

#include <string>
#include <vector>

#include "app/engine/signals.hpp"
#include "app/options/train_options.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::app {

/// Parses argv without the program name and the subcommand. Throws UsageError or HelpRequested.
TrainOptions read_train_command(const std::vector<std::string>& arguments);

/// Collective. Trains a network. Returns the exit code: 0 if training is done, 75 if it stopped early, either with a
/// checkpoint or before the first step. Ignores `signals` after the last checkpoint. Throws comm::ConsensusError for
/// errors that all ranks know, and other exceptions for errors of this rank alone.
int run_train(comm::MpiSession& session, const TrainOptions& given, StopSignals& signals);

}  // namespace lockstep::app
