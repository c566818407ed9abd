/// \file
/// `lockstep bench scale`: the same training steps on 1, 2, 4 … of a job's ranks, and what becomes of their time.
///
/// IN TURNS. A visit to a world sets everything up, warms up, times its steps and takes it down again; one round visits
/// every world once, so that what disturbs the machine for a while disturbs all of them. Memory is that of one world.
///
/// THE OTHERS wait asleep in a meeting of the whole job. A visit may last longer than the deadline: its ranks come to
/// the meeting between two steps before that, and say how long it will be until the next.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "app/options.hpp"
#include "comm/mpi_session.hpp"

namespace lockstep::app {

struct BenchScaleOptions {
  StepWork work;
  std::string scaling = "both";          ///< weak | strong | both
  std::vector<std::int64_t> worlds;      ///< empty: 1, 2, 4 … and all ranks
  std::int64_t global_batch = 0;         ///< of strong scaling; 0: as weak scaling in the smallest world
  std::int64_t rounds = 3;               ///< visits to each world
  std::int64_t warmup = 5;               ///< steps of a visit before the clock starts
  std::int64_t repeat = 0;               ///< steps timed in a visit; 0: about a second's worth
  std::filesystem::path csv, json, svg;  ///< also write the rows there
};

/// argv without the program name and the subcommand. Throws UsageError or HelpRequested. In options_bench_step.cpp.
BenchScaleOptions parse_bench_scale(const std::vector<std::string>& arguments);

int run_bench_scale(comm::MpiSession& session, const BenchScaleOptions& options);

}  // namespace lockstep::app
