#include "app/help/command_help.hpp"

#include <algorithm>

namespace lockstep::app {
namespace {

bool has_row(std::span<const HelpRow> rows, const std::string& name) {
  return std::ranges::any_of(rows, [&](const HelpRow& row) { return row.name == name; });
}

}  // namespace

std::vector<HelpRow> own_rows(const CommandHelp& command, const HelpPage& network) {
  std::vector<HelpRow> rows;
  // The command's page includes the options of the default network; other networks may have the same ones.
  const std::string group = "Network";
  for (const HelpRow& row : network.rows) {
    const bool shared =
        std::ranges::all_of(command.networks, [&](const HelpPage& other) { return has_row(other.rows, row.name); });
    if (row.group == group && !shared) rows.push_back(row);
  }
  return rows;
}

std::vector<HelpRow> all_rows(const CommandHelp& command) {
  std::vector<HelpRow> rows = command.page.rows;
  for (const HelpPage& network : command.networks) {
    for (const HelpRow& row : network.rows) {
      if (!has_row(rows, row.name)) rows.push_back(row);
    }
  }
  return rows;
}

}  // namespace lockstep::app
