/// \file
/// The checkpoints of a run: when one is due, and how it is written beside the steps.
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

/// A checkpoint is due after numbers of steps, by the clock, when a user asks for one (a signal, a file in the run's
/// folder), and for the best validation so far if the clock decides.
class CheckpointSchedule {
 public:
  /// Collective. Allocates the copies that checkpoints are written from. `written` is called on rank 0 when one is
  /// complete. All references must outlive this. Throws comm::ConsensusError.
  CheckpointSchedule(const Plan& plan, comm::Communicator& communicator, Engine& engine, PendingError& error,
                     std::function<void(const WrittenCheckpoint&)> written);

  /// On every rank, once. `folder`: rank 0's, otherwise null. `continues`: the run's folder has the checkpoint `from`.
  void open(std::shared_ptr<io::RunFolder> folder, bool continues, const io::TrainingRecord& from,
            io::IoDeadline& deadline);
  /// Adds a checkpoint to this rank's request for the next step if it wants one. `signals`: new ones that ask for it.
  void ask(Trainer::Request& request, std::int64_t signals);
  /// True if a checkpoint would follow `next`, the steps to be made.
  bool is_ahead(const StepsMade& next, const Validation& validation) const {
    return next.include(work_.checkpoint_every) || checkpointer_.under_way() ||
           (saves_best() && validation.is_due(next));
  }
  /// True if one follows these steps, the same on all ranks.
  bool is_due(const StepsMade& made, const Trainer::Result& step, const Validation& validation) const {
    return made.include(work_.checkpoint_every) || step.save_due || step.save_requests > 0 ||
           (saves_best() && validation.best_step() == made.now);
  }
  /// Notes the metrics of a validation, by which the best checkpoints are kept.
  void validated(std::int64_t step, const Score& score) { checkpointer_.validated(step, score.best, score.loss); }
  /// Collective. Copies the state; the next steps change the original while the copy is written. No effect if the
  /// record's step has been saved. `record`: complete on rank 0, on others the step.
  void save(const io::TrainingRecord& record);
  /// The same for a state that is saved without its validation: a run resumed from there would validate again.
  void save_again(const io::TrainingRecord& record);
  /// Call after a checkpoint that signals have requested.
  void answered() noexcept { requests_.answered(); }
  /// Looks whether a checkpoint is complete; collective if several ranks write. The next step's vote reports a failure.
  void poll();
  /// Collective. Waits for the checkpoint under way, if any.
  void wait();
  /// Throws io::FileError if one of the shards that this rank checks has changed since it was opened: checkpoints of
  /// weights that have seen other data than the run began with are prevented.
  void check_own_shards(std::int64_t step) const;

  double seconds() const noexcept { return seconds_; }  ///< time without training
  /// Rank 0's newest and best checkpoint, for the last line.
  std::string results() const;

 private:
  /// Checkpoints by the clock seldom coincide with a validation: the best validation so far causes its own checkpoint.
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
  bool told_to_save_ = false;  ///< rank 0, by a file in the run's folder
  std::int64_t saved_step_ = -1;
  StopWatch since_saved_, since_looked_;
  double seconds_ = 0;
  std::filesystem::path newest_, best_;  ///< rank 0: newest of this process, best of the run; "": none
};

}  // namespace lockstep::app
