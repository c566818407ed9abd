/// \file
/// The folders in which MPI puts files while it starts: that they are there, and have room.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::comm {

struct StartFolder {
  std::filesystem::path folder;
  std::string remedy;          ///< "TMPDIR chooses another"
  std::uint64_t min_free = 0;  ///< bytes
  bool is_needed = true;       ///< MPI does not start without; else it is slower
};

/// Those of this process, as the environment has them: like every reader of it not beside MPI's start, which writes
/// there. Empty where MPI is not known to make any.
std::vector<StartFolder> start_folders();

/// The fault of the first of them that is missing, read-only or too full: "/tmp has 0 KiB left, less than the
/// 8192 KiB that MPI needs there: TMPDIR chooses another". "": none.
std::string obstacle_in(const std::vector<StartFolder>& folders);

}  // namespace lockstep::comm
