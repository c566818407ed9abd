/// \file
/// `lockstep bench step`: measures the time of a training step on this machine, and breaks it down.
#pragma once

#include "app/bench/bench_options.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::app {

int run_bench_step(comm::MpiSession& session, const BenchStepOptions& options);

}  // namespace lockstep::app
