/// \file
/// A folder for a benchmark's temporary files.
#pragma once

#include <filesystem>
#include <string>

#include "comm/communicator.hpp"
#include "io/files/io_deadline.hpp"

namespace lockstep::app {

/// Rank 0 creates it, and removes it with everything in it.
class ScratchFolder {
 public:
  /// Collective: in `parent` (empty: the working folder), with the name NAME- and eight random letters. `deadline`: for
  /// creating and removing it; outlives it. Throws comm::ConsensusError.
  ScratchFolder(comm::Communicator& communicator, const std::filesystem::path& parent, const std::string& name,
                io::IoDeadline& deadline);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  /// On every rank.
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  bool owns_;
  io::IoDeadline& deadline_;
  std::filesystem::path path_;
};

}  // namespace lockstep::app
