/// \file
/// The checkpoint that a command uses.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep::app {

/// Which checkpoint of a run.
struct CheckpointChoice {
  enum class Which {
    best,    ///< by validation metric, where there is one; else the newest that verifies
    latest,  ///< the newest that verifies
  };
  std::filesystem::path path;  ///< a run folder, a checkpoints folder, or a file: then nothing is left to choose
  Which which = Which::best;
  std::string name = {};  ///< of a checkpoint in that folder, which is then the one; "": `which` tells
};

}  // namespace lockstep::app
