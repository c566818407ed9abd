/// \file
/// The program around its commands: selects the command, owns session and signals, and reports failed jobs.
#pragma once

#include <vector>

#include "app/command.hpp"

namespace lockstep::app {

/// Runs the command that the arguments name. Returns the exit code. `signals` has noted signals since the start of
/// main. Throws if MPI does not start, or if help cannot be printed.
int run_program(int argc, char** argv, const std::vector<Command>& commands, StopSignals& signals);

}  // namespace lockstep::app
