/// \file
/// Between a model and its checkpoints: what is saved, who reads, how every rank gets the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory_resource>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "io/checkpoint.hpp"
#include "model/state/arena.hpp"
#include "model/state/parameter_state.hpp"
#include "model/state/recurrent_state.hpp"
#include "model/training/training.hpp"

namespace lockstep::app {

/// What a network carries from batch to batch, of all sequences of the global batch: float32 [sequences, elements]; no
/// sequences where it carries nothing.
struct StatefulSequences {
  std::int64_t sequences = 0, elements = 0;
  std::vector<float> values;
};

struct SnapshotOptions {
  bool keeps_all = true;       ///< this rank's copy is of all state; else it only helps to gather it
  std::int64_t sequences = 0;  ///< of the global batch
};

/// A copy of a model's state in host memory that is taken once: training goes on while it is written.
class Snapshot {
 public:
  /// Of such a training, whose ranks reduce in these buckets. The memory is touched at once: the first copy takes no
  /// longer than the others.
  Snapshot(model::Training& training, std::span<const comm::Slice> buckets, const SnapshotOptions& options,
           std::pmr::memory_resource* memory);
  /// What the constructor takes.
  static std::size_t bytes(model::Training& training, std::span<const comm::Slice> buckets,
                           const SnapshotOptions& options);

  /// Collective: copies the state of this moment. Where ranks share the update they bring it together, bucket by
  /// bucket.
  void take(comm::Communicator& communicator, model::Training& training);
  /// All of it, where it is kept, under the names that a checkpoint gives it; valid until the next take().
  std::vector<io::TensorView> tensors() const;

 private:
  std::span<float> group(std::size_t index) const;
  void gather(comm::Communicator& communicator, const model::ParameterState& parameters);

  SnapshotOptions options_;
  std::vector<comm::Slice> buckets_;
  std::vector<std::string> groups_;
  std::vector<model::StateTensor> tensors_;
  std::size_t elements_;  ///< of a group
  model::Arena memory_;   ///< one group after another; where nothing is kept, one bucket
  StatefulSequences recurrent_;
};

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
