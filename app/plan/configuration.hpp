/// \file
/// The configuration of a run as it is kept: in config.ini, and in every checkpoint.
#pragma once

#include <string>
#include <vector>

#include "app/options/train_options.hpp"

namespace lockstep::app {

/// What --config needs to repeat the run from any folder: with absolute paths, without what belongs to one launch
/// alone.
std::string stored_configuration(const TrainOptions& settings);

/// Options of `settings` that `before`, a configuration stored earlier, has otherwise: "name = value" as they are now.
/// Paths differ where they name other files, however they are spelled. Throws UsageError on text that is none.
std::vector<std::string> changed_options(const std::string& before, const TrainOptions& settings);

}  // namespace lockstep::app
