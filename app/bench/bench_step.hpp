/// \file
/// `lockstep bench step`: what a training step costs here, and where the time goes.
#pragma once

#include "app/options/bench_options.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::app {

int run_bench_step(comm::MpiSession& session, const BenchStepOptions& options);

}  // namespace lockstep::app
