/// \file
/// Between a model and its checkpoints: what is saved, who reads, how every rank gets the same.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "app/sharding.hpp"
#include "comm/communicator.hpp"
#include "io/checkpoint.hpp"
#include "io/sharded_dataset.hpp"
#include "model/model.hpp"

namespace lockstep::app {

/// What a network carries from batch to batch, of all lanes of the global batch: float32 [lanes, elements]; no lanes
/// where it carries nothing.
struct CarriedState {
  std::int64_t lanes = 0, elements = 0;
  std::vector<float> values;
};
/// Collective: every rank's lanes, [lanes r / R, lanes (r + 1) / R), in one array on all ranks.
CarriedState gather_carried(comm::Communicator& communicator, model::Model& model, std::int64_t lanes);

/// Writes the model's whole state, `state` and `carried` as gathered before; rank 0 only. Throws io::FileError.
std::filesystem::path save_checkpoint(io::CheckpointWriter& writer, const model::Model& model,
                                      const io::TrainingRecord& record, const StateGroups& state,
                                      const CarriedState& carried);

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

  /// Collective: fills every group that `model` has, by broadcast. Throws comm::AgreedError when the checkpoint is of
  /// another network (names the first tensor that differs) or lacks a group.
  void restore(model::Model& model);
  /// Collective: this rank's lanes of the carried state, before restore(), which forgets what it has read. Throws
  /// comm::AgreedError where the checkpoint was made with another number of lanes.
  void restore_carried(model::Model& model, std::int64_t lanes);

 private:
  comm::Communicator& communicator_;
  io::Checkpoint checkpoint_;  ///< rank 0 only
  io::TrainingRecord record_;
  std::filesystem::path file_;
  std::vector<std::string> warnings_;
};

/// Collective: rank 0's text on every rank.
std::string broadcast_text(comm::Communicator& communicator, const std::string& text);

// What app says where two rooms have a word for the same thing.
comm::Transport parse_transport(const std::string& name);
std::string join_lines(const std::vector<std::string>& lines);

}  // namespace lockstep::app
