/// \file
/// `lockstep help`: what the commands take, for people, man and shells.
#pragma once

#include <vector>

#include "app/command.hpp"
#include "app/options/options.hpp"

namespace lockstep::app {

/// The text of `lockstep COMMAND --help`, a manual page, a completion, or all of the last two as files. Throws
/// UsageError for a command that there is not, io::FileError for a file that cannot be written.
int run_help(const HelpOptions& options, const std::vector<Command>& commands);

}  // namespace lockstep::app
