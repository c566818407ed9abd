/// \file
/// The state in which the steps of a run begin: the checkpoint that --resume names, the check that it fits the run, and
/// the checkpoint to return to after a divergence.
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

/// An origin with the open files from which its state is restored, and the state of the run's log there.
struct RestorePoint : Origin {
  std::optional<CheckpointOnRank0> checkpoint;   ///< until it is restored; empty: at step 0
  std::optional<CheckpointOnRank0> weight_file;  ///< with --initialize-from, until the weights have been copied
  std::int64_t newest_seen = -1;                 ///< rank 0: step of the newest file there, verified or not
  bool continues = false;                        ///< the run's folder has the checkpoint of these steps
  bool rolled_back = false;                      ///< this process has made steps before
  std::vector<io::MetricRecord> events;          ///< events that no checkpoint contains yet

  /// Collective. The run goes on from this checkpoint. Throws comm::ConsensusError.
  void open(comm::Communicator& communicator, const CheckpointChoice& choice);
  /// Collective. Throws comm::ConsensusError.
  void open_weights(comm::Communicator& communicator, const StartOptions& options);
};

/// Collective. With `newest`, a run folder without a checkpoint (a job that was requeued before its first one) starts
/// at step 0. `network`: for the name of a new run's folder. `deadline` outlives the result.
RestorePoint find_origin(comm::Communicator& communicator, Console& console, const RunOptions& options,
                         const std::string& network, io::IoDeadline& deadline);

/// Collective. With --resume rank 0 owns the run's folder from here on, and no other process writes there. The previous
/// owner may have continued beyond the checkpoint that was read: afterwards `origin` is the newest one.
std::optional<io::RunFolder> take_folder(comm::Communicator& communicator, Console& console, RestorePoint& origin,
                                         const Plan& plan);

/// Collective. Restores the checkpoint of `origin`, which it closes, or initialises the weights; the plan begins there.
/// `rolled_back`: the roll-back of this process that returns there. Throws comm::ConsensusError.
void restore(comm::Communicator& communicator, Console& console, Plan& plan, Engine& engine, RestorePoint& origin,
             const std::optional<RollBack>& rolled_back = {});

/// The roll-back after a divergence of steps that began at `from`. Throws comm::ConsensusError if --roll-back allows no
/// more.
RollBack roll_back_after(const Divergence& divergence, const Standing& from, const RunOptions& options);

/// Collective, after a divergence: `origin` becomes the newest checkpoint of the run up to `limit`, or the run's
/// starting checkpoint, or step 0 if it began there. `now`: rank 0's record of the run so far. Removes the run's
/// checkpoints of later steps, which lead to the divergence.
void return_to_checkpoint(comm::Communicator& communicator, RestorePoint& origin, const Plan& plan,
                          const io::TrainingRecord& now, std::int64_t limit);

/// Chooses among the checkpoints in `folder` that belong to the history of the run `now`. Removes those of steps after
/// `limit`, unless there are no others, and returns the newest that is left; empty: there is none. Damaged ones do not
/// count. Throws io::FileError if the folder cannot be listed or a file cannot be removed.
std::filesystem::path return_to_checkpoint(const std::filesystem::path& folder, const io::TrainingRecord& now,
                                           std::int64_t limit);

/// True if the run `now` went through the checkpoint of this step, whose history is `its`. A run that stepped back to
/// an older checkpoint leaves files of another branch behind, which contain other validations.
bool lies_behind(const io::TrainingRecord& now, std::int64_t step, const std::string& its);

/// Adds a record for each of the run's checkpoints up to `now` that `metrics`, in its folder, lacks because the writing
/// process was killed before it could add one. Their durations are unknown (null).
void record_unrecorded_checkpoints(io::MetricsLog& metrics, const std::filesystem::path& run,
                                   const io::TrainingRecord& now, io::IoDeadline& deadline);

/// True if `file` is in the run's own checkpoints folder (a resume from elsewhere begins a new run folder).
bool is_of_run(const std::filesystem::path& file, const std::filesystem::path& run);

/// Collective. Throws comm::ConsensusError if the checkpoint belongs to another network, optimiser or dataset, and
/// UsageError if it lacks a requested average; reports options that changed.
void check_continues(comm::Communicator& communicator, Console& console, const io::TrainingRecord& record,
                     const Plan& plan);

}  // namespace lockstep::app
