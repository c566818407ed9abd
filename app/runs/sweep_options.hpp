/// \file
/// The options of `lockstep sweep`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/options/train_options.hpp"

namespace lockstep::app {

/// One training of a sweep.
struct SweepSetting {
  std::string line{};                    ///< line of the file
  std::vector<std::string> arguments{};  ///< arguments for `lockstep train`, including those common to all settings
  TrainOptions options{};                ///< options that these arguments give
};

struct SweepOptions {
  std::filesystem::path settings, run;
  std::vector<std::string> launch;  ///< words of the launcher, before the program's name
  bool halving = false;
  std::vector<SweepSetting> lines;  ///< not empty
};

/// Parses argv without the program name and the subcommand. Throws UsageError or HelpRequested. Reads the file
/// of settings.
SweepOptions parse_sweep(const std::vector<std::string>& arguments);

}  // namespace lockstep::app
