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
  bool manual = false;               ///< as a manual page
  std::optional<Shell> shell = {};   ///< the completion for this shell instead
  std::filesystem::path write = {};  ///< folder for all manual pages and completions, which are then written instead
};

/// Parses argv without the program name and the subcommand. Throws UsageError or HelpRequested.
HelpOptions parse_help(const std::vector<std::string>& arguments);

}  // namespace lockstep::app
