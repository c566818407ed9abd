/// \file
/// The checkpoint that a command uses.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep::app {

/// A checkpoint of a run.
struct CheckpointChoice {
  enum class Which {
    best,    ///< best by validation metric; the newest valid one if none was validated
    latest,  ///< the newest valid one
  };
  std::filesystem::path path;  ///< run folder, checkpoints folder, or one checkpoint file
  Which which = Which::best;
  std::int64_t heads = 0;  ///< attention heads of a GPT-2 in a weight file, which may not tell them; 0: not given
  std::string name = {};   ///< name of a checkpoint in the folder, overrides `which`; "": `which` decides
};

}  // namespace lockstep::app
