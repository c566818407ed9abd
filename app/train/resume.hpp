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
#include "app/train/course.hpp"
#include "comm/communicator.hpp"
#include "io/runs/metrics_log.hpp"
#include "io/runs/run_folder.hpp"
#include "model/training/schedule.hpp"

namespace lockstep::app {

/// Starting point of a run.
struct Origin {
  std::optional<CheckpointOnRank0> checkpoint;  ///< empty: at step 0
  std::optional<CheckpointOnRank0>
      weights;  ///< with --initialize-from: the initial weights, until they have been copied; empty otherwise
  std::filesystem::path folder;        ///< folder of the run
  bool takes_folder_over = false;      ///< the folder holds an attempt that ended before its first checkpoint
  io::IoDeadline* deadline = nullptr;  ///< deadline of reading checkpoint and weights
  std::int64_t newest_seen = -1;       ///< rank 0: step of the newest file there, verified or not

  /// Collective. Throws comm::AgreedError.
  void read_weights(comm::Communicator& communicator, const StartOptions& options) {
    weights.emplace(communicator, CheckpointChoice{.path = options.from}, deadline, CheckpointOnRank0::Accept::weights);
  }
  /// True if the optimiser starts with a fresh state when the checkpoint is restored.
  bool begins_optimizer(const Plan& plan) const;
  const io::TrainingRecord* record() const noexcept { return checkpoint ? &checkpoint->record() : nullptr; }
};

/// Collective. With `newest`, a run folder without a checkpoint (a job that was requeued before its first one) starts
/// at step 0. `network`: for the name of a new run's folder. `deadline` outlives the origin.
Origin find_origin(comm::Communicator& communicator, Console& console, const RunOptions& options,
                   const std::string& network, io::IoDeadline& deadline);

/// Collective. With --resume rank 0 owns the run's folder from here on, and no other process writes there. The previous
/// owner may have continued beyond the checkpoint that was read: afterwards `origin` is the newest one.
std::optional<io::RunFolder> take_folder(comm::Communicator& communicator, Console& console, Origin& origin,
                                         const Plan& plan);

/// Collective: the schedule's clock at the origin. Rank 0 alone has the history.
model::ScheduleClock clock_of(comm::Communicator& communicator, const Origin& origin);

/// Collective, after a divergence: `origin` becomes the newest checkpoint of the run up to `limit`, or the run's
/// starting checkpoint, or empty if it began at step 0. `now`: rank 0's record of the run so far. Removes the run's
/// checkpoints of later steps, which lead to the divergence.
void return_to_checkpoint(comm::Communicator& communicator, Origin& origin, const Plan& plan,
                          const io::TrainingRecord& now, std::int64_t limit);

/// True if the run `now` went through the checkpoint of this step, whose history is `its`. A run that stepped back to
/// an older checkpoint leaves files of another branch behind, which contain other validations.
bool lies_behind(const io::TrainingRecord& now, std::int64_t step, const std::string& its);

/// Adds a record for each of the run's checkpoints up to `now` that `metrics`, in its folder, lacks because the writing
/// process was killed before it could add one. Their durations are unknown (null).
void record_unrecorded_checkpoints(io::MetricsLog& metrics, const std::filesystem::path& run,
                                   const io::TrainingRecord& now, io::IoDeadline& deadline);

/// True if `file` is in the run's own checkpoints folder (a resume from elsewhere begins a new run folder).
bool is_of_run(const std::filesystem::path& file, const std::filesystem::path& run);

/// Collective. Throws comm::AgreedError if the checkpoint belongs to another network, optimiser or dataset, and
/// UsageError if it lacks a requested average; reports options that changed.
void check_continues(comm::Communicator& communicator, Console& console, const io::TrainingRecord& record,
                     const Plan& plan);

/// The state in which steps begin: at step 0, at a checkpoint, or after a return to one.
struct Start {
  io::TrainingRecord record;  ///< record of the steps before; complete on rank 0 only
  Course course;
  bool continues = false;               ///< the run's folder has the checkpoint of these steps
  bool rolled_back = false;             ///< this process has made steps before
  std::vector<io::MetricRecord> notes;  ///< events that no checkpoint contains yet
};

/// Collective. Restores the checkpoint of `origin`, which it releases, or initialises the weights; the plan begins
/// there. `before`: the course of this process until its roll-back. Throws comm::AgreedError.
Start restore(comm::Communicator& communicator, Console& console, Plan& plan, Engine& engine, Origin& origin,
              const std::optional<Course>& before = {});

/// The course after another roll-back. Throws comm::AgreedError if --roll-back allows no more.
Course course_after(const Divergence& divergence, const Course& before, const RunOptions& options);

}  // namespace lockstep::app
