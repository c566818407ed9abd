/// \file
/// The program around its commands: which one is asked for, whose lifetimes, what is said where a job fails.
#pragma once

#include <vector>

#include "app/command.hpp"

namespace lockstep::app {

/// Runs the command that the arguments name. Returns the exit code. `signals` as they are noted since the start.
/// Throws where MPI does not start, or help cannot be printed.
int run_program(int argc, char** argv, const std::vector<Command>& commands, StopSignals& signals);

}  // namespace lockstep::app
