/// \file
/// Decides when a run saves checkpoints, and writes them while training continues.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "app/engine/checkpointer.hpp"
#include "app/engine/engine.hpp"
#include "app/engine/trainer.hpp"
#include "app/plan/plan.hpp"
#include "app/plan/task.hpp"
#include "app/report/stop_watch.hpp"
#include "app/train/checkpoint_requests.hpp"
#include "app/train/pending_error.hpp"
#include "app/train/validation.hpp"
#include "comm/communicator.hpp"
#include "io/files/io_deadline.hpp"
#include "io/runs/run_folder.hpp"

namespace lockstep::app {

/// A checkpoint is due at an interval of steps or of time, and when a user requests one (by a signal, or by a file in
/// the run's folder). With an interval of time, the best validation so far causes a checkpoint, too.
class CheckpointSchedule {
 public:
  /// Collective. Allocates the copies that checkpoints are written from. Rank 0 calls `written` when a checkpoint is
  /// complete. All references must outlive this object. Throws comm::ConsensusError.
  CheckpointSchedule(const Plan& plan, comm::Communicator& communicator, Engine& engine, PendingError& error,
                     std::function<void(const WrittenCheckpoint&)> written);

  /// Call once on every rank. `folder`: the run's folder on rank 0, null on other ranks. `continues`: the run continues
  /// in its folder, from the record `from`.
  void open(std::shared_ptr<io::RunFolder> folder, bool continues, const io::TrainingRecord& from,
            io::IoDeadline& deadline);
  /// Adds a checkpoint to this rank's request for the next step if one is due. `signals`: number of new signals that
  /// request one.
  void ask(Trainer::Request& request, std::int64_t signals);
  /// True if a checkpoint may follow `next`, the steps about to be made, or one is being written.
  bool is_ahead(const StepsMade& next, const Validation& validation) const {
    return next.include(work_.checkpoint_every) || checkpointer_.under_way() ||
           (saves_best() && validation.is_due(next));
  }
  /// True if a checkpoint follows these steps. The result is the same on all ranks.
  bool is_due(const StepsMade& made, const Trainer::Result& step, const Validation& validation) const {
    return made.include(work_.checkpoint_every) || step.save_due || step.save_requests > 0 ||
           (saves_best() && validation.best_step() == made.now);
  }
  /// Records the metrics of a validation. They decide which checkpoints are the best and are kept.
  void validated(std::int64_t step, const Score& score) { checkpointer_.validated(step, score.best, score.loss); }
  /// Collective. Copies the state and starts to write the copy, while the next steps change the original. Does nothing
  /// if the record's step has been saved. `record` is complete on rank 0; other ranks need only the step.
  void save(const io::TrainingRecord& record);
  /// Collective. Saves a step again after its validation. Its first checkpoint lacks the result, so that a run resumed
  /// from it would validate again. Does nothing if the record's step is not the one saved last.
  void save_again(const io::TrainingRecord& record);
  /// Call on every rank after a checkpoint that signals have requested.
  void answered() noexcept { requests_.answered(); }
  /// Checks whether the checkpoint under way is complete. Collective if several ranks write. The vote of the next step
  /// reports a failure to all ranks.
  void poll();
  /// Collective. Waits for the checkpoint under way, if any.
  void wait();
  /// Throws io::FileError if one of the shards that this rank checks has changed since it was opened. This prevents
  /// checkpoints of weights that were trained on other data than the run began with.
  void check_own_shards(std::int64_t step) const;

  double seconds() const noexcept { return seconds_; }  ///< time in which training waited for checkpoints
  /// Names the newest and the best checkpoint, for the last line of rank 0.
  std::string results() const;

 private:
  /// True if the best validation so far causes a checkpoint: checkpoints by the clock seldom coincide with a
  /// validation.
  bool saves_best() const { return options_.checkpoint_every.seconds > 0 && options_.keep_best > 0; }
  bool is_due_on_rank0();

  const RunOptions& options_;
  const Workload& workload_;
  const WorkPlan& work_;
  comm::Communicator& communicator_;
  Engine& engine_;
  PendingError& error_;
  std::function<void(const WrittenCheckpoint&)> written_;
  Checkpointer checkpointer_;
  std::shared_ptr<io::RunFolder> folder_;  ///< rank 0; shared with the thread that writes a checkpoint
  CheckpointRequests requests_;
  bool told_to_save_ = false;  ///< rank 0: a file in the run's folder requests a checkpoint
  std::int64_t saved_step_ = -1;
  StopWatch since_saved_, since_looked_;
  double seconds_ = 0;
  std::filesystem::path newest_, best_;  ///< rank 0: newest of this process, best of the run; "": none yet
};

}  // namespace lockstep::app
