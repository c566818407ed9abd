/// \file
/// The stored configuration of a run: in config.ini, and in every checkpoint.
#pragma once

#include <string>
#include <vector>

#include "app/options/stored_options.hpp"
#include "app/options/train_options.hpp"

namespace lockstep::app {

/// Text for --config that repeats the run from any folder: absolute paths, no options of a single launch.
std::string stored_configuration(const TrainOptions& settings);

/// Options of `settings` that differ in `before`, a configuration stored earlier: "name = value" with the present
/// values. Paths differ if they name different files, in whatever spelling. Throws UsageError on text that is no
/// configuration.
std::vector<std::string> changed_options(const StoredRun& before, const TrainOptions& settings);

}  // namespace lockstep::app
