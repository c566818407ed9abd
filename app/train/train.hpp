/// \file
/// `lockstep train`: the main command.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/engine/signals.hpp"
#include "app/options/train_options.hpp"
#include "app/plan/plan.hpp"
#include "app/report/console.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::app {

/// The options in argv without the program name and the subcommand. Throws UsageError or HelpRequested.
TrainOptions read_train_command(const std::vector<std::string>& arguments);

/// The surroundings of a training.
struct Training {
  Console& console;  ///< receives its messages, except errors
  /// Calls its argument, which makes the steps.
  std::function<int(const std::function<int()>&)> around_steps;
  std::function<void(const Plan&)> planned = {};  ///< called on every rank before training
  double speed = 1;                               ///< fraction of this rank's own speed (Slowdown)
};
/// Collective, like run_train().
int train(comm::MpiSession& session, const TrainOptions& options, StopSignals& signals, const Training& training);

/// Collective over all ranks. Returns the exit code: 0 done, 75 stopped on request, with a checkpoint or before the
/// first step. `signals` are ignored after the last checkpoint. Throws comm::AgreedError for errors that all ranks
/// know, other exceptions for errors of this rank alone.
int run_train(comm::MpiSession& session, const TrainOptions& options, StopSignals& signals);

}  // namespace lockstep::app
