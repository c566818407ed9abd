/// \file
/// Manual pages of section 1 in roff's man macros, for man and groff.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "app/help/command_help.hpp"

namespace lockstep::app {

/// The name of a command's page: "lockstep-bench-step".
std::string manual_name(std::string_view command);
std::string manual_page(const CommandHelp& command, std::string_view version);
/// The page of the whole program, "lockstep".
std::string program_manual(std::span<const CommandHelp> commands, std::string_view version);

}  // namespace lockstep::app
