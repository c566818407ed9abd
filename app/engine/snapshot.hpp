/// \file
/// Moves state between a model and its checkpoints: selects the state, reads it on rank 0, distributes it to all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory_resource>
#include <span>
#include <string>
#include <vector>

#include "app/options/checkpoint_choice.hpp"
#include "app/plan/work_plan.hpp"
#include "comm/communicator.hpp"
#include "io/checkpoints/checkpoint.hpp"
#include "io/files/io_deadline.hpp"
#include "model/state/arena.hpp"
#include "model/state/parameter_state.hpp"
#include "model/state/recurrent_state.hpp"
#include "model/training/training.hpp"

namespace lockstep::app {

/// Recurrent state that a network carries from batch to batch, for all sequences of the global batch: float32
/// [sequences, elements]. Without such state there are no sequences.
struct StatefulSequences {
  std::int64_t sequences = 0, elements = 0;
  std::vector<float> values;
};

/// One rank's share of checkpoints that several ranks write together.
struct SnapshotShare {
  int writer = -1;                  ///< index among the writers; -1: none
  std::vector<comm::Slice> ranges;  ///< ranges of the arenas, ascending; a single writer has the whole
  bool gathers = false;             ///< each rank updates a part, and the ranks gather the parts bucket by bucket
};
/// Computes this rank's share. Writers are spread over the ranks, and rank 0 is the first writer. If all ranks write
/// and share the update, each rank writes the part that it updates, without communication. `sharing`: between the ranks
/// that share the update, if any. If there are several such groups, rank 0's group gathers the state that the first
/// writer saves.
SnapshotShare snapshot_share(const model::ParameterState& parameters, std::span<const comm::Slice> buckets,
                             const comm::Communicator& communicator, const comm::Communicator& sharing, int writers);

/// Collective over the ranks that share the update: gathers one bucket of a state group into `all`. Each rank
/// contributes its own part.
void gather_bucket(comm::Communicator& sharing, const model::ParameterState& parameters, const std::string& group,
                   const comm::Slice& bucket, std::span<float> all);

/// A group of state in a checkpoint besides the training's own, in the layout of the gradients. Both functions are
/// collective.
struct CarriedGroup {
  std::string name;
  /// Copies the group to `out`, which has the length of the gradients. On a rank whose `out` is empty, only takes part.
  std::function<void(std::span<float> out)> save;
  std::function<void(std::span<const float> in)> restore;
};

/// A copy of a model's state in host memory, allocated once: training continues while it is written.
class Snapshot {
 public:
  struct Options {
    SnapshotShare share;
    SequenceShare sequences = {};            ///< sequences of networks with recurrent state
    std::vector<CarriedGroup> carried = {};  ///< further state; only if one rank writes everything
  };
  /// Allocates a snapshot for `training`, whose ranks reduce in `buckets`. Touches all memory, so that the first copy
  /// is as fast as later ones.
  Snapshot(model::Training& training, std::span<const comm::Slice> buckets, const Options& options,
           std::pmr::memory_resource* memory);
  /// Memory that the constructor allocates, in bytes.
  static std::size_t bytes(model::Training& training, std::span<const comm::Slice> buckets, const Options& options);

  /// Collective: copies this rank's share of the present state.
  void take(comm::Communicator& communicator, comm::Communicator& sharing, model::Training& training);

  // The copied state, valid until the next take().
  /// All tensors, on the single writer.
  std::vector<io::TensorView> tensors() const;
  /// The values of every tensor that this writer has, and the content of the file that joins all writers' files.
  std::vector<io::TensorPiece> pieces() const;
  std::vector<io::SplitTensor> split_tensors() const;
  /// Recurrent state, on every rank; empty if the network carries none.
  std::vector<io::TensorView> recurrent() const;

 private:
  std::span<float> kept(std::size_t group, const comm::Slice& range) const;
  void gather(comm::Communicator& sharing, const model::ParameterState& parameters);
  std::span<float> kept_group(std::size_t group) const;
  std::span<float> room_for_bucket(std::size_t elements) const;

  Options options_;
  std::vector<comm::Slice> buckets_;
  std::vector<std::string> groups_;
  std::vector<model::StateTensor> tensors_;
  std::size_t updated_elements_;     ///< length of the arenas' updated part
  std::vector<std::size_t> begins_;  ///< offset of each group in `memory_`; carried groups last, then the end
  model::Arena memory_;              ///< kept ranges of all groups, then memory for a bucket of other writers
  StatefulSequences recurrent_;
};

/// A checkpoint that rank 0 has read and verified. Every rank has its record.
class CheckpointOnRank0 {
 public:
  /// Collective. Throws comm::ConsensusError on every rank if rank 0 cannot read a checkpoint. `deadline` limits
  /// reading to the longest expected time for the bytes plus the deadline itself. `accept`: `weights` also accepts a
  /// file of weights alone (.safetensors), whose record is empty.
  enum class Accept { checkpoints, weights };
  CheckpointOnRank0(comm::Communicator& communicator, const CheckpointChoice& choice,
                    io::IoDeadline* deadline = nullptr, Accept accept = Accept::checkpoints);

  /// The record, on every rank; only rank 0 has its history (`metrics`).
  const io::TrainingRecord& record() const noexcept { return record_; }
  const std::filesystem::path& file() const noexcept { return file_; }
  /// Rank 0: the key of the validation metric in the history, "accuracy"; "" if there is none.
  std::string metric_key() const;
  /// Rank 0: checksum of the state, 16 hex digits.
  std::string checksum() const;
  /// True if the checkpoint's run validated with the averaged weights; on every rank.
  bool validated_average() const;
  /// Rank 0: true if `best` points at the checkpoint.
  bool is_best() const noexcept { return is_best_; }
  /// Rank 0: better or newer checkpoints that did not verify, one sentence each.
  const std::vector<std::string>& warnings() const noexcept { return warnings_; }

  /// Collective: broadcasts every group of `parameters`. Throws comm::ConsensusError if the checkpoint lacks a group or
  /// belongs to another network; the message names the first tensor that differs. `carried`: groups to restore; a group
  /// that the checkpoint lacks stays unchanged.
  void restore(model::ParameterState& parameters, std::span<const CarriedGroup> carried = {});
  /// Collective: restores the parameters, and their average if both have one (otherwise the average begins with the
  /// parameters); the optimiser's state stays unchanged. Throws like restore().
  void restore_without_optimizer(model::ParameterState& parameters);
  /// Collective: sets the parameters whose names the checkpoint has, to the averages if its run validated with them.
  /// Other parameters keep their values, and so do those that match a pattern of `reinitialize` ("*" matches anything).
  /// Throws like beginnings().
  void initialize(model::ParameterState& parameters, std::span<const std::string> reinitialize);
  /// Collective: describes the source of the weights, with a table of the initial value of each tensor of `network`.
  /// Throws comm::ConsensusError if shapes differ or no tensor would be used, UsageError if a pattern matches nothing.
  std::string beginnings(const model::ParameterTable& network, std::span<const std::string> reinitialize);
  /// Collective: restores this rank's sequences of the recurrent state. Call before restore(), which discards the
  /// tensors read. Throws comm::ConsensusError if the checkpoint has another number of sequences.
  void restore_recurrent_state(model::RecurrentState& recurrent, const SequenceShare& own);

 private:
  struct Wanted;
  struct Beginning;
  Beginning beginning_of(std::span<const Wanted> tensors, std::span<const std::string> reinitialize) const;
  bool has_group(const std::string& group) const;
  void require_group(const std::string& group, std::span<const model::StateTensor> tensors);
  void share_group(const std::string& group, std::span<const model::StateTensor> tensors, std::span<float> arena);
  void broadcast_numbers();

  comm::Communicator& communicator_;
  io::Checkpoint checkpoint_;  ///< rank 0 only
  io::TrainingRecord record_;
  std::filesystem::path file_;
  bool is_best_ = false;
  std::vector<std::string> warnings_;
};

/// Collective: returns rank 0's text on every rank.
std::string broadcast_text(comm::Communicator& communicator, const std::string& text);

}  // namespace lockstep::app
