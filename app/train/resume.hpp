/// \file
/// What a run goes on from: the checkpoint that --resume stands for, and whether it fits.
#pragma once

#include <filesystem>
#include <optional>

#include "app/engine/snapshot.hpp"
#include "app/options/train_options.hpp"
#include "app/plan/plan.hpp"
#include "app/report/console.hpp"
#include "comm/communicator.hpp"
#include "io/runs/metrics_log.hpp"

namespace lockstep::app {

/// Where a run begins.
struct Origin {
  std::optional<CheckpointOnRank0> checkpoint;  ///< empty: at step 0
  std::optional<CheckpointOnRank0> weights;     ///< then those that it begins with (--initialize-from), until it does
  std::filesystem::path folder;                 ///< of the run
  bool takes_folder_over = false;               ///< what it holds is an attempt that ended before its first checkpoint
  io::IoDeadline* deadline = nullptr;           ///< of reading them
  std::int64_t newest_seen = -1;                ///< rank 0: step of the newest file there, whether it verifies or not

  /// Collective. Throws comm::AgreedError.
  void read_weights(comm::Communicator& communicator, const StartOptions& options) {
    weights.emplace(communicator, CheckpointChoice{.path = options.from}, deadline, CheckpointOnRank0::Accept::weights);
  }
  /// The optimiser begins anew with what is restored.
  bool begins_optimizer(const Plan& plan) const;
  const io::TrainingRecord* record() const noexcept { return checkpoint ? &checkpoint->record() : nullptr; }
};

/// Collective. `newest` in a run folder that has no checkpoint yet (a job that was requeued before its first one)
/// begins anew. `network`: for the name of a new run's folder. `deadline` outlives the origin.
Origin find_origin(comm::Communicator& communicator, Console& console, const RunOptions& options,
                   const std::string& network, io::IoDeadline& deadline);

/// Collective, when rank 0 owns the folder: the owner before may have written until then. True where there is a newer
/// checkpoint than was seen, which `origin` then holds.
bool found_newer(comm::Communicator& communicator, Console& console, Origin& origin);

/// Collective, after a divergence: `origin` becomes the newest checkpoint of the run up to `limit`, or what it began
/// with, or nothing where it began at step 0. `now`: rank 0's record of the run so far. The run's checkpoints of later
/// steps are removed: they lead where it cannot go on.
void return_to_checkpoint(comm::Communicator& communicator, Origin& origin, const Plan& plan,
                          const io::TrainingRecord& now, std::int64_t limit);

/// Whether the run that has come to `now` went through the checkpoint of this step whose history is `its`. A run that
/// stepped back to an older checkpoint leaves files behind that it did not: those have seen other validations.
bool lies_behind(const io::TrainingRecord& now, std::int64_t step, const std::string& its);

/// Adds a record for each of the run's checkpoints up to `now` that `metrics`, in its folder, has none of: whoever
/// wrote it was killed before it could say so. How long it took is not known (null).
void record_unrecorded_checkpoints(io::MetricsLog& metrics, const std::filesystem::path& run,
                                   const io::TrainingRecord& now, io::IoDeadline& deadline);

/// `file` lies in the run's own checkpoints folder (a resume from elsewhere begins a new run folder).
bool is_of_run(const std::filesystem::path& file, const std::filesystem::path& run);

/// Collective. Throws comm::AgreedError when the checkpoint is of another network, optimiser or dataset, UsageError
/// when it lacks the average that is asked for; tells of options that changed.
void check_continues(comm::Communicator& communicator, Console& console, const io::TrainingRecord& record,
                     const Plan& plan);

}  // namespace lockstep::app
