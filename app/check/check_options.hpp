/// \file
/// The options of `lockstep check`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/options/train_options.hpp"

namespace lockstep::app {

struct CheckOptions {
  TrainOptions train;          ///< options of the future job; without data, the check skips data and memory
  double seconds = 5;          ///< time for measuring the network
  std::filesystem::path json;  ///< file for the findings
  /// Returns all options as an INI file.
  std::string to_ini() const;
};

/// Parses argv without the program name and the subcommand. Throws UsageError or HelpRequested.
CheckOptions parse_check(const std::vector<std::string>& arguments);

}  // namespace lockstep::app
