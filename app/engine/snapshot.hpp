/// \file
/// Exchange between a model and its checkpoints: selection of the state, reading on rank 0, distribution to all ranks.
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
#include "app/plan/workload.hpp"
#include "comm/communicator.hpp"
#include "io/checkpoints/checkpoint.hpp"
#include "io/files/io_deadline.hpp"
#include "model/state/arena.hpp"
#include "model/state/parameter_state.hpp"
#include "model/state/recurrent_state.hpp"
#include "model/training/training.hpp"

namespace lockstep::app {

/// Recurrent state that a network carries from batch to batch, for all sequences of the global batch: float32
/// [sequences, elements]; no sequences if it carries none.
struct StatefulSequences {
  std::int64_t sequences = 0, elements = 0;
  std::vector<float> values;
};

/// One rank's share of checkpoints that several ranks write together.
struct SnapshotShare {
  int writer = -1;                  ///< index among the writers; -1: none
  std::vector<comm::Slice> ranges;  ///< ranges of the arenas, ascending; a single writer keeps everything
  bool gathers = false;             ///< the ranks gather, bucket by bucket, the parts that each of them updates
};
/// Writers are spread over the ranks, rank 0 is the first. If all ranks write and share the update, each writes the
/// part that it updates, without communication. `sharing`: between the ranks that share the update, if any; of several
/// such groups rank 0's gathers the state that the first writer saves.
SnapshotShare snapshot_share(const model::ParameterState& parameters, std::span<const comm::Slice> buckets,
                             const comm::Communicator& communicator, const comm::Communicator& sharing, int writers);

/// Collective over the ranks that share the update: gathers a bucket of a group into `all`; each rank contributes its
/// own part.
void gather_bucket(comm::Communicator& sharing, const model::ParameterState& parameters, const std::string& group,
                   const comm::Slice& bucket, std::span<float> all);

/// State besides the training's own in a checkpoint, laid out like the gradients; both functions are collective.
struct CarriedGroup {
  std::string name;
  /// Copies the group to `out`, whose length is that of the gradients, or does nothing if `out` is empty.
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
  /// Snapshot of such a training, whose ranks reduce in these buckets. Touches the memory at once, so that the first
  /// copy takes no longer than later ones.
  Snapshot(model::Training& training, std::span<const comm::Slice> buckets, const Options& options,
           std::pmr::memory_resource* memory);
  /// Memory that the constructor allocates, in bytes.
  static std::size_t bytes(model::Training& training, std::span<const comm::Slice> buckets, const Options& options);

  /// Collective: copies this rank's share of the present state.
  void take(comm::Communicator& communicator, comm::Communicator& sharing, model::Training& training);

  // The copied state, valid until the next take().
  /// All tensors, on the single writer.
  std::vector<io::TensorView> tensors() const;
  /// This writer's values of every tensor, and the content of the file that joins them.
  std::vector<io::TensorPiece> pieces() const;
  std::vector<io::SplitTensor> split_tensors() const;
  /// Recurrent state: on every rank; empty if the network carries none.
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
  std::vector<std::size_t> begins_;  ///< offset of each group in `memory_`, carried groups last, and the end
  model::Arena memory_;  ///< kept ranges of one group after another; then memory for a bucket of other writers
  StatefulSequences recurrent_;
};

/// A checkpoint that rank 0 has read and verified. Every rank knows its record.
class CheckpointOnRank0 {
 public:
  /// Collective. Throws comm::ConsensusError on every rank if rank 0 cannot read one. `deadline` limits reading: the
  /// longest expected time for its bytes, plus the deadline itself. `accept`: `weights` accepts weights alone (a
  /// .safetensors file), whose record is empty.
  enum class Accept { checkpoints, weights };
  CheckpointOnRank0(comm::Communicator& communicator, const CheckpointChoice& choice,
                    io::IoDeadline* deadline = nullptr, Accept accept = Accept::checkpoints);

  /// On every rank; its history (`metrics`) only on rank 0.
  const io::TrainingRecord& record() const noexcept { return record_; }
  const std::filesystem::path& file() const noexcept { return file_; }
  /// The key of the validation metric in its history, "accuracy"; "" if there is none; on rank 0.
  std::string metric_key() const;
  /// Checksum of its state, 16 hex digits; on rank 0.
  std::string checksum() const;
  /// True if its run validated with the averaged weights; on every rank.
  bool validated_average() const;
  /// True if `best` points at it; on rank 0.
  bool is_best() const noexcept { return is_best_; }
  /// Better or newer checkpoints that did not verify, one sentence each; on rank 0.
  const std::vector<std::string>& warnings() const noexcept { return warnings_; }

  /// Collective: fills every group of `parameters`, by broadcast. Throws comm::ConsensusError if the checkpoint belongs
  /// to another network (names the first tensor that differs) or lacks a group. `carried`: groups that the checkpoint
  /// lacks stay unchanged.
  void restore(model::ParameterState& parameters, std::span<const CarriedGroup> carried = {});
  /// Collective: restores the parameters, and their average if both have one (otherwise the average begins with the
  /// parameters); the optimiser's state stays unchanged. Throws like restore().
  void restore_without_optimizer(model::ParameterState& parameters);
  /// Collective: sets the parameters whose names the checkpoint has (to the averages if its run validated with them).
  /// Others keep their values, and so do those that match a pattern of `reinitialize` ("*" for anything). Throws like
  /// beginnings().
  void initialize(model::ParameterState& parameters, std::span<const std::string> reinitialize);
  /// Collective: the source of the weights and a table of the initial value of each tensor of such a network. Throws
  /// comm::ConsensusError if shapes differ or if no tensor would be taken, UsageError if a pattern matches nothing.
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
