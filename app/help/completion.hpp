/// \file
/// Completion scripts: they complete commands, options, and values that are file names or have a few names.
#pragma once

#include <span>
#include <string>

#include "app/help/command_help.hpp"
#include "app/help/help_options.hpp"

namespace lockstep::app {

std::string completion_script(Shell shell, std::span<const CommandHelp> commands);

}  // namespace lockstep::app
