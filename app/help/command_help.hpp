/// \file
/// Help of a command and its networks, for its manual page and for shells.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "app/options/help_page.hpp"

namespace lockstep::app {

struct CommandHelp {
  std::string name;  ///< "bench step"
  std::string summary;
  HelpPage page;
  std::vector<HelpPage> networks = {};  ///< the page of each network, if the command has --model
};

/// Returns the rows of a network that the command itself does not have.
std::vector<HelpRow> own_rows(const CommandHelp& command, const HelpPage& network);
/// Returns every option of the command once, including those of all networks.
std::vector<HelpRow> all_rows(const CommandHelp& command);

}  // namespace lockstep::app
