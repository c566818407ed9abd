/// \file
/// Paths in a run's configuration, after the run's folder was moved or mounted elsewhere.
#pragma once

#include <filesystem>

namespace lockstep::app {

/// Finds data that were moved together with the run. Returns `file` if it exists. Otherwise returns the path that has
/// the same position relative to `run_now` that `file` has relative to `run_before`, or `file` if that does not exist.
std::filesystem::path moved_along(const std::filesystem::path& file, const std::filesystem::path& run_before,
                                  const std::filesystem::path& run_now);

}  // namespace lockstep::app
