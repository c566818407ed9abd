/// \file
/// Between a model and its checkpoints: what is saved, who reads, how every rank gets the same.
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

/// What a network carries from batch to batch, of all sequences of the global batch: float32 [sequences, elements]; no
/// sequences where it carries nothing.
struct StatefulSequences {
  std::int64_t sequences = 0, elements = 0;
  std::vector<float> values;
};

/// What one rank keeps for the checkpoints that some ranks write together.
struct SnapshotShare {
  int writer = -1;                  ///< which of the writers; -1: none
  std::vector<comm::Slice> ranges;  ///< of the arenas, ascending; one writer keeps all of them
  bool gathers = false;             ///< the ranks bring together what each of them updates, bucket by bucket
};
/// Writers are spread over the ranks, rank 0 is the first. Where all ranks write and share the update, each writes what
/// it updates, and nothing travels.
/// `sharing`: between the ranks that share the update, where some do; of several such groups that of rank 0 brings
/// together what the first writer saves.
SnapshotShare snapshot_share(const model::ParameterState& parameters, std::span<const comm::Slice> buckets,
                             const comm::Communicator& communicator, const comm::Communicator& sharing, int writers);

/// Collective over the ranks that share the update: `all` becomes the bucket's values of a group, of which each of them
/// has its own part.
void gather_bucket(comm::Communicator& sharing, const model::ParameterState& parameters, const std::string& group,
                   const comm::Slice& bucket, std::span<float> all);

/// State beside a training's own that a checkpoint holds, laid out like the gradients; both collective.
struct CarriedGroup {
  std::string name;
  /// Where `out` is not empty it becomes the group, as long as the gradients.
  std::function<void(std::span<float> out)> save;
  std::function<void(std::span<const float> in)> restore;
};

/// A copy of a model's state in host memory that is taken once: training goes on while it is written.
class Snapshot {
 public:
  struct Options {
    SnapshotShare share;
    SequenceShare sequences = {};            ///< of networks that carry state from batch to batch
    std::vector<CarriedGroup> carried = {};  ///< where one rank writes all
  };
  /// Of such a training, whose ranks reduce in these buckets. The memory is touched at once: the first copy takes no
  /// longer than the others.
  Snapshot(model::Training& training, std::span<const comm::Slice> buckets, const Options& options,
           std::pmr::memory_resource* memory);
  /// What the constructor takes.
  static std::size_t bytes(model::Training& training, std::span<const comm::Slice> buckets, const Options& options);

  /// Collective: copies this rank's share of the state of this moment.
  void take(comm::Communicator& communicator, comm::Communicator& sharing, model::Training& training);

  // What was copied, valid until the next take().
  /// All tensors, of the one writer.
  std::vector<io::TensorView> tensors() const;
  /// This writer's values of every tensor, and what the file says that joins them.
  std::vector<io::TensorPiece> pieces() const;
  std::vector<io::SplitTensor> split_tensors() const;
  /// What networks carry from batch to batch: on every rank; no tensor where they carry nothing.
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
  std::size_t updated_elements_;     ///< of the arenas
  std::vector<std::size_t> begins_;  ///< of each group in `memory_`, those carried last, and the end
  model::Arena memory_;  ///< one group after another, of each the ranges as far as it goes; then room for a bucket of
                         ///< others
  StatefulSequences recurrent_;
};

/// A checkpoint that rank 0 has read and verified and whose record every rank knows.
class CheckpointOnRank0 {
 public:
  /// Collective. Throws comm::AgreedError on every rank when rank 0 cannot read one. `deadline` is that of reading one:
  /// for as long as its bytes may take at the slowest, and the deadline itself.
  /// `accept`: whether weights alone will do (a .safetensors file): then the record says nothing.
  enum class Accept { checkpoints, weights };
  CheckpointOnRank0(comm::Communicator& communicator, const CheckpointChoice& choice,
                    io::IoDeadline* deadline = nullptr, Accept accept = Accept::checkpoints);

  /// On every rank; its history (`metrics`) on rank 0 only.
  const io::TrainingRecord& record() const noexcept { return record_; }
  const std::filesystem::path& file() const noexcept { return file_; }
  /// The key of the validation metric in its history, "accuracy"; "" where there is none; on rank 0.
  std::string metric_key() const;
  /// Of its state, 16 hex digits; on rank 0.
  std::string checksum() const;
  /// Its run validated with the averaged weights; on every rank.
  bool validated_average() const;
  /// It is the one that `best` points at; on rank 0.
  bool is_best() const noexcept { return is_best_; }
  /// Better or newer checkpoints that did not verify, one sentence each; on rank 0.
  const std::vector<std::string>& warnings() const noexcept { return warnings_; }

  /// Collective: fills every group that `parameters` has, by broadcast. Throws comm::AgreedError when the checkpoint is
  /// of another network (names the first tensor that differs) or lacks a group.
  /// `carried`: filled where the checkpoint has them, left alone where it has none of them.
  void restore(model::ParameterState& parameters, std::span<const CarriedGroup> carried = {});
  /// Collective: the parameters, and their average where both know one (else it begins with them); the optimiser's
  /// state stays as it is. Throws as restore().
  void restore_without_optimizer(model::ParameterState& parameters);
  /// Collective: the parameters whose name the checkpoint knows take its values (those that its run validated with: the
  /// averages, where it did with them), the others keep theirs; so do those
  /// that match a pattern of `reinitialize` ("*" for anything). Throws as beginnings().
  void initialize(model::ParameterState& parameters, std::span<const std::string> reinitialize);
  /// Collective: whose weights they are and a table of what each tensor of such a network would begin with. Throws
  /// comm::AgreedError where shapes differ and where nothing would be taken, UsageError where a pattern matches
  /// nothing.
  std::string beginnings(const model::ParameterTable& network, std::span<const std::string> reinitialize);
  /// Collective: this rank's sequences of the recurrent state, before restore(), which forgets what it has read. Throws
  /// comm::AgreedError where the checkpoint was made with another number of sequences.
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

/// Collective: rank 0's text on every rank.
std::string broadcast_text(comm::Communicator& communicator, const std::string& text);

}  // namespace lockstep::app
