/// \file
/// Between a model and its checkpoints: what is saved, who reads, how every rank gets the same.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "io/checkpoint.hpp"
#include "io/sharded_dataset.hpp"
#include "model/state/parameter_state.hpp"
#include "model/state/recurrent_state.hpp"

namespace lockstep::app {

/// What a network carries from batch to batch, of all sequences of the global batch: float32 [sequences, elements]; no
/// sequences where it carries nothing.
struct StatefulSequences {
  std::int64_t sequences = 0, elements = 0;
  std::vector<float> values;
};
/// Collective: every rank's sequences, [sequences r / R, sequences (r + 1) / R), in one array on all ranks.
StatefulSequences gather_recurrent_state(comm::Communicator& communicator, const model::RecurrentState& recurrent,
                                         std::int64_t sequences);

/// A model's state as checkpoints hold it: one array per group, in the order of ParameterState::state_groups().
using StateGroups = std::vector<std::vector<float>>;
/// All of the state on rank 0, nothing elsewhere. Collective where ranks share the update, `buckets` as they do; it
/// then takes room for one bucket on every rank. Else of rank 0 alone.
StateGroups gather_state(comm::Communicator& communicator, const model::ParameterState& parameters,
                         std::span<const comm::Slice> buckets);

/// Writes the model's whole state, `state` and `recurrent` as gathered before; rank 0 only. Throws io::FileError.
std::filesystem::path save_checkpoint(io::CheckpointWriter& writer, const model::ParameterState& parameters,
                                      const io::TrainingRecord& record, const StateGroups& state,
                                      const StatefulSequences& recurrent);

/// A checkpoint that rank 0 has read and verified and whose record every rank knows.
class CheckpointOnRank0 {
 public:
  /// Collective. `path`: a file, a run folder or a checkpoints folder (the newest that verifies). Throws
  /// comm::AgreedError on every rank when rank 0 cannot read one.
  CheckpointOnRank0(comm::Communicator& communicator, const std::filesystem::path& path);

  const io::TrainingRecord& record() const noexcept { return record_; }
  const std::filesystem::path& file() const noexcept { return file_; }
  /// Newer checkpoints that did not verify, one sentence each; on rank 0.
  const std::vector<std::string>& warnings() const noexcept { return warnings_; }

  /// Collective: fills every group that `parameters` has, by broadcast. Throws comm::AgreedError when the checkpoint is
  /// of another network (names the first tensor that differs) or lacks a group.
  void restore(model::ParameterState& parameters);
  /// Collective: this rank's sequences of the recurrent state, before restore(), which forgets what it has read. Throws
  /// comm::AgreedError where the checkpoint was made with another number of sequences.
  void restore_recurrent_state(model::RecurrentState& recurrent, std::int64_t sequences);

 private:
  comm::Communicator& communicator_;
  io::Checkpoint checkpoint_;  ///< rank 0 only
  io::TrainingRecord record_;
  std::filesystem::path file_;
  std::vector<std::string> warnings_;
};

/// Collective: rank 0's text on every rank.
std::string broadcast_text(comm::Communicator& communicator, const std::string& text);

}  // namespace lockstep::app
