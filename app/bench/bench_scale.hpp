/// \file
/// `lockstep bench scale`: the same training steps on 1, 2, 4 … of a job's ranks, and a breakdown of their times.
///
/// IN TURNS. A visit to a world sets everything up, warms up, times its steps and frees everything again; one round
/// visits every world once, so that a disturbance of the machine affects all worlds alike. The memory is that of one
/// world.
///
/// THE OTHER RANKS sleep in an all-reduce over the whole job. A visit may last longer than the deadline: its ranks then
/// join that all-reduce between two steps, before the deadline, and announce when they will join the next.
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
