/// \file
/// `lockstep help`: the options of the commands as text, manual pages and completions for shells.
#pragma once

#include <vector>

#include "app/command.hpp"
#include "app/help/help_options.hpp"

namespace lockstep::app {

/// Prints the text of `lockstep COMMAND --help`, a manual page or a completion, or writes all manual pages and
/// completions to files. Throws UsageError for an unknown command, io::FileError for a file that cannot be written.
int run_help(const HelpOptions& options, const std::vector<Command>& commands);

}  // namespace lockstep::app
