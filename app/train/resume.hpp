/// \file
/// The state from which a run starts or resumes: finds the checkpoint that --resume names, checks that it fits the run,
/// restores it, and returns to a checkpoint after a divergence.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "app/engine/divergence.hpp"
#include "app/engine/engine.hpp"
#include "app/engine/snapshot.hpp"
#include "app/options/train_options.hpp"
#include "app/plan/plan.hpp"
#include "app/report/console.hpp"
#include "comm/communicator.hpp"
#include "io/runs/metrics_log.hpp"
#include "io/runs/run_folder.hpp"

namespace lockstep::app {

/// An origin with the open files from which its state is restored, and the facts that the run's log needs.
struct RestorePoint : Origin {
  std::optional<CheckpointOnRank0> checkpoint;   ///< open until restored; nullopt: start at step 0
  std::optional<CheckpointOnRank0> weight_file;  ///< --initialize-from; open until the weights are copied
  std::int64_t newest_seen = -1;                 ///< rank 0: newest step in the folder, verified or not; -1: none
  bool continues = false;                        ///< in its folder: from a checkpoint there, or after a roll-back
  bool rolled_back = false;                      ///< this process has rolled back to this point
  std::vector<io::MetricRecord> events;          ///< events that no checkpoint contains yet

  /// Collective. Opens the checkpoint from which the run continues. Throws comm::ConsensusError.
  void open(comm::Communicator& communicator, const CheckpointChoice& choice);
  /// Collective. Opens the checkpoint or weight file of --initialize-from. Throws comm::ConsensusError.
  void open_weights(comm::Communicator& communicator, const CheckpointChoice& choice);
};

/// Collective. Finds the folder of the run and the checkpoint from which it resumes. With Resume::From::newest, a run
/// whose folder has no checkpoint (its job was requeued before the first one) starts at step 0. `network` is part of
/// the name of a new run's folder. `deadline` must outlive the result. Throws UsageError without --run, and
/// comm::ConsensusError.
RestorePoint find_origin(comm::Communicator& communicator, Console& console, const RunOptions& options,
                         const std::string& network, io::IoDeadline& deadline);

/// Collective. With Resume::From::newest, rank 0 takes ownership of the run's folder, and no other process writes there
/// from then on. The previous owner may have written a newer checkpoint in the meantime; `origin` then becomes that
/// checkpoint. Returns the folder on rank 0; nullopt on other ranks and without Resume::From::newest.
std::optional<io::RunFolder> take_folder(comm::Communicator& communicator, Console& console, RestorePoint& origin,
                                         const Plan& plan);

/// Collective. Restores the checkpoint of `origin` and closes it, or initialises the weights. Sets the plan to begin at
/// `origin`. `rolled_back`: the roll-back of this process that leads to `origin`, if any. Throws comm::ConsensusError.
void restore(comm::Communicator& communicator, Console& console, Plan& plan, Engine& engine, RestorePoint& origin,
             const std::optional<RollBack>& rolled_back = {});

/// Returns the roll-back after a divergence in steps that began at `from`. Throws comm::ConsensusError if --roll-back
/// allows no more of them.
RollBack roll_back_after(const Divergence& divergence, const Standing& from, const RunOptions& options);

/// Collective. After a divergence, sets `origin` to the newest checkpoint of the run up to step `limit`, or to its
/// oldest checkpoint if all are later. A run without checkpoints returns to the file that it resumed from, or to step
/// 0. Removes the run's later checkpoints, which lead to the divergence. `now`: record of the run so far, used on rank
/// 0. Throws comm::ConsensusError.
void return_to_checkpoint(comm::Communicator& communicator, RestorePoint& origin, const Plan& plan,
                          const io::TrainingRecord& now, std::int64_t limit);

/// Chooses among the checkpoints in `folder` that belong to the history of the run `now`. Returns the newest up to step
/// `limit`, or the oldest if all are later, and removes the ones newer than it. Returns "" if there is none. Ignores
/// damaged files. Throws io::FileError if the folder cannot be listed or a file cannot be removed.
std::filesystem::path return_to_checkpoint(const std::filesystem::path& folder, const io::TrainingRecord& now,
                                           std::int64_t limit);

/// True if the checkpoint of `step` with the history `its` belongs to the past of the run `now`. A run that continued
/// from an older checkpoint leaves files of another branch behind, whose histories contain other validations.
bool lies_behind(const io::TrainingRecord& now, std::int64_t step, const std::string& its);

/// Adds the missing records of the run's checkpoints up to `now` to `metrics`, the log in the run's folder. A record is
/// missing if the process was killed between writing the checkpoint and its record. Its duration is unknown (null).
void record_unrecorded_checkpoints(io::MetricsLog& metrics, const std::filesystem::path& run,
                                   const io::TrainingRecord& now, io::IoDeadline& deadline);

/// True if `file` is in the run's own folder of checkpoints. A run that resumes from another file has a new run folder.
bool is_of_run(const std::filesystem::path& file, const std::filesystem::path& run);

/// Collective. Checks that the run can continue from the checkpoint of `record`, and reports options that changed.
/// Throws comm::ConsensusError if the checkpoint has another network, optimiser, dataset or seed. Throws UsageError if
/// its loss has another metric, or if it lacks a requested average of the weights.
void check_continues(comm::Communicator& communicator, Console& console, const io::TrainingRecord& record,
                     const Plan& plan);

}  // namespace lockstep::app
