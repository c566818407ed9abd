/// \file
/// `lockstep bench step`: the cost of a training step on this machine, and a breakdown of its time.
#pragma once

#include "app/bench/bench_options.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::app {

int run_bench_step(comm::MpiSession& session, const BenchStepOptions& options);

}  // namespace lockstep::app
