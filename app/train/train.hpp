/// \file
/// `lockstep train`: the main job.
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

/// The options of argv without the program name and the subcommand. Throws UsageError or HelpRequested.
TrainOptions read_train_command(const std::vector<std::string>& arguments);

/// What a training is a part of.
struct Training {
  Console& console;  ///< what it says, but for errors
  /// Calls what it is given: the steps.
  std::function<int(const std::function<int()>&)> around_steps;
  std::function<void(const Plan&)> planned = {};  ///< on every rank, before anything is trained
  double speed = 1;                               ///< of this rank (Slowdown)
};
/// Collective, as run_train.
int train(comm::MpiSession& session, const TrainOptions& options, StopSignals& signals, const Training& training);

/// Collective over all ranks. Returns the exit code: 0 done, 75 stopped on request, with a checkpoint or before the
/// first step. `signals` are ignored after the last checkpoint. Throws comm::AgreedError for what all ranks know,
/// anything else for what only this rank knows.
int run_train(comm::MpiSession& session, const TrainOptions& options, StopSignals& signals);

}  // namespace lockstep::app
