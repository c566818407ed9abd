/// \file
/// `lockstep check`: looks at everything that a job will depend on, before the job: hosts, program, cores, network,
/// clocks, data, memory, disk. Changes nothing.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/options.hpp"
#include "comm/mpi_session.hpp"

namespace lockstep::app {

struct CheckOptions {
  TrainOptions train;          ///< of the job to come; without data: its data and memory are not looked at
  double seconds = 5;          ///< for the network
  std::filesystem::path json;  ///< also write what was found there
};

/// argv without the program name and the subcommand. Throws UsageError or HelpRequested. In options_check.cpp.
CheckOptions parse_check(const std::vector<std::string>& arguments);

/// Collective. 0: nothing stands in the way; 1: something does, and is on the list.
int run_check(comm::MpiSession& session, const CheckOptions& options);

}  // namespace lockstep::app
