/// \file
/// Completion scripts: commands, their options, and the options' values if they are file names or one of a few names.
#pragma once

#include <span>
#include <string>

#include "app/help/command_help.hpp"
#include "app/help/help_options.hpp"

namespace lockstep::app {

std::string completion_script(Shell shell, std::span<const CommandHelp> commands);

}  // namespace lockstep::app
