/// \file
/// Reads the checkpoint that a command asks for, in one process.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/options/checkpoint_choice.hpp"
#include "io/checkpoints/checkpoint.hpp"

namespace lockstep::app {

struct ChosenCheckpoint {
  io::Checkpoint checkpoint;
  std::filesystem::path file;
  bool is_best = false;               ///< true if `best` points at it
  std::vector<std::string> warnings;  ///< better or newer checkpoints that did not verify, one sentence each
  /// "runs/a/checkpoints/step-0000000100.h5 (step 100, the best of its run, averaged weights)".
  std::string description(bool average) const;
};

/// Reads and verifies the chosen checkpoint. Throws io::FileError if no checkpoint verifies.
ChosenCheckpoint read_chosen_checkpoint(const CheckpointChoice& choice);

/// The key of the validation metric in a checkpoint's history, "accuracy"; "" if there is none.
std::string metric_key_of(const io::TrainingRecord& record);

}  // namespace lockstep::app
