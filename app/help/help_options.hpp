/// \file
/// The options of `lockstep help`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::app {

enum class Shell { bash, zsh, fish };

struct HelpOptions {
  std::string command;               ///< "bench step"; "": the program
  bool manual = false;               ///< print a manual page
  std::optional<Shell> shell = {};   ///< print the completion for this shell instead
  std::filesystem::path write = {};  ///< folder; if given, write all manual pages and completions into it instead
};

/// Parses argv without the program name and the subcommand. Throws UsageError or HelpRequested.
HelpOptions parse_help(const std::vector<std::string>& arguments);

}  // namespace lockstep::app
