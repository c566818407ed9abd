/// \file
/// `lockstep check`: before a job, examines what it depends on: hosts, program, cores, network, clocks, data, memory,
/// disk. Changes nothing.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/check/check_options.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::app {

/// Collective. Returns 0 if nothing prevents the job, 1 if the list contains an error.
int run_check(comm::MpiSession& session, const CheckOptions& options);

}  // namespace lockstep::app
