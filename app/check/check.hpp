/// \file
/// `lockstep check`: looks at everything that a job will depend on, before the job: hosts, program, cores, network,
/// clocks, data, memory, disk. Changes nothing.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/options/bench_options.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::app {

/// Collective. 0: nothing stands in the way; 1: something does, and is on the list.
int run_check(comm::MpiSession& session, const CheckOptions& options);

}  // namespace lockstep::app
