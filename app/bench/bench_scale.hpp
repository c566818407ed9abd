/// \file
/// `lockstep bench scale`: times the same training steps on 1, 2, 4 … of a job's ranks, and breaks down the times.
///
/// A "world" is a number of ranks. A visit to a world sets everything up, warms up, times its steps and frees
/// everything. One round visits every world once, so that a disturbance of the machine affects all worlds. The job
/// needs the memory of one world.
///
/// Ranks outside the world wait in an all-reduce over the whole job. A visit may last longer than the deadline. Its
/// ranks therefore join that all-reduce between two steps, before the deadline, and announce when they will join the
/// next one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "app/bench/bench_options.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::app {

int run_bench_scale(comm::MpiSession& session, const BenchScaleOptions& options);

}  // namespace lockstep::app
