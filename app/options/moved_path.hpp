/// \file
/// Paths in a run's configuration after the run's folder was moved or is mounted elsewhere.
#pragma once

#include <filesystem>

namespace lockstep::app {

/// Returns `file` if it exists or if there is no other candidate. Otherwise returns the path that has the same position
/// relative to the run's present folder that `file` had relative to the former one: data that were moved with the run.
std::filesystem::path moved_along(const std::filesystem::path& file, const std::filesystem::path& run_before,
                                  const std::filesystem::path& run_now);

}  // namespace lockstep::app
