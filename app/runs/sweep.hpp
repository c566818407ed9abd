/// \file
/// `lockstep sweep`: makes a training for each line of a file and ranks them. One process without MPI starts the
/// trainings.
#pragma once

#include <cstdint>
#include <vector>

#include "app/engine/signals.hpp"
#include "app/runs/sweep_folder.hpp"
#include "app/runs/sweep_options.hpp"

namespace lockstep::app {

/// Returns the exit code: 0, 1 if a training failed, 75 if a signal stopped it. Throws io::FileError.
int run_sweep(const SweepOptions& options, StopSignals& signals);

/// Number of rungs of successive halving with `settings` settings: 8, 4, 2, 1 are four rungs.
std::int64_t rungs_of(std::int64_t settings);
/// Share of the steps that a training has made at the end of a rung: 1/8, 1/4, 1/2, 1.
double share_of_steps(std::int64_t rung, std::int64_t rungs);
/// Returns the settings that continue: the better half of those with a metric (two of three), in the order of their
/// numbers. Throws io::FileError if their metrics are of different kinds.
std::vector<std::int64_t> better_half(const std::vector<std::int64_t>& settings,
                                      const std::vector<SweepResult>& results);

}  // namespace lockstep::app
