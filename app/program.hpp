/// \file
/// The program around its commands: selection of the command, lifetimes, and messages about failed jobs.
#pragma once

#include <vector>

#include "app/command.hpp"

namespace lockstep::app {

/// Runs the command that the arguments name. Returns the exit code. `signals`: noted since the start. Throws if MPI
/// does not start, or if help cannot be printed.
int run_program(int argc, char** argv, const std::vector<Command>& commands, StopSignals& signals);

}  // namespace lockstep::app
