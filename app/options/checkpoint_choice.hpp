/// \file
/// The checkpoint that a command uses.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep::app {

/// A checkpoint of a run.
struct CheckpointChoice {
  enum class Which {
    best,    ///< best by validation metric, if there is one; else the newest that verifies
    latest,  ///< the newest that verifies
  };
  std::filesystem::path path;  ///< a run folder, a checkpoints folder, or a file, which leaves nothing to choose
  Which which = Which::best;
  std::string name = {};  ///< name of a checkpoint in that folder, which overrides `which`; "": `which` decides
};

}  // namespace lockstep::app
