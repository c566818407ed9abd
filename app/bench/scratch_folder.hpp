/// \file
/// A folder for a benchmark's temporary files.
#pragma once

#include <filesystem>
#include <string>

#include "comm/communicator.hpp"
#include "io/files/io_deadline.hpp"

namespace lockstep::app {

/// Rank 0 creates the folder, and removes it with its contents.
class ScratchFolder {
 public:
  /// Collective: creates the folder in `parent` (empty: the working folder), with the name NAME- and eight random
  /// letters. `deadline` limits creating and removing it and must outlive this object. Throws comm::ConsensusError.
  ScratchFolder(comm::Communicator& communicator, const std::filesystem::path& parent, const std::string& name,
                io::IoDeadline& deadline);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  /// The folder's path, on every rank.
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  bool owns_;
  io::IoDeadline& deadline_;
  std::filesystem::path path_;
};

}  // namespace lockstep::app
