/// \file
/// Files that a run knows by their paths, after its folder was moved, or is mounted elsewhere.
#pragma once

#include <filesystem>

namespace lockstep::app {

/// `file` where it is there, or where nothing else is found. Else what lies, seen from the run's folder as it is now,
/// where `file` lay from the folder as it was: data that were moved with the run.
std::filesystem::path moved_along(const std::filesystem::path& file, const std::filesystem::path& run_before,
                                  const std::filesystem::path& run_now);

}  // namespace lockstep::app
