/// \file
/// Folders in which MPI creates files while it starts, and a check that they exist and have space.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::comm {

struct StartFolder {
  std::filesystem::path folder;
  std::string remedy;          ///< advice for the user: "TMPDIR chooses another"
  std::uint64_t min_free = 0;  ///< bytes
  bool is_needed = true;       ///< MPI cannot start without it; otherwise MPI is slower
};

/// The folders for this process, according to the environment; empty if this MPI is not known to use any. Must not run
/// concurrently with MPI's start, which writes to the environment.
std::vector<StartFolder> start_folders();

/// Describes the first folder that is missing, read-only or too full, such as "/tmp has 0 KiB left, less than the 8192
/// KiB that MPI needs there: TMPDIR chooses another". Empty if there is none.
std::string obstacle_in(const std::vector<StartFolder>& folders);

}  // namespace lockstep::comm
