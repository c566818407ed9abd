/// \file
/// A training run, from the first step to the last checkpoint.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "app/engine/checkpointer.hpp"
#include "app/engine/engine.hpp"
#include "app/engine/evaluation.hpp"
#include "app/engine/signals.hpp"
#include "app/engine/trainer.hpp"
#include "app/plan/plan.hpp"
#include "app/report/console.hpp"
#include "app/report/step_figures.hpp"
#include "app/report/stop_watch.hpp"
#include "app/train/checkpoint_requests.hpp"
#include "app/train/course.hpp"
#include "app/train/patience.hpp"
#include "app/train/report.hpp"
#include "app/train/wall_time.hpp"
#include "comm/communicator.hpp"
#include "io/files/io_deadline.hpp"
#include "io/runs/run_folder.hpp"

namespace lockstep::app {

/// A training run after all checks and allocations: everything between and after the steps.
class Run {
 public:
  /// Collective. Allocates the memory of checkpoints. Throws comm::AgreedError.
  Run(const Plan& plan, comm::Communicator& communicator, Console& console, Engine& engine, Trainer& trainer,
      WallTime wall_time, std::function<void(DataPlace)> go_on_at);

  /// Collective. Creates the folder, or continues in it if `continues`, with `from` a checkpoint of the same run.
  /// `taken`: rank 0's folder if it owns it already. `deadline` outlives the run.
  void open_folder(std::optional<io::RunFolder> taken, bool continues, const io::TrainingRecord& from,
                   io::IoDeadline& deadline);
  /// Records an event besides the steps in the metrics, and in the history that checkpoints contain.
  void note(const io::MetricRecord& record);
  /// Marks the next steps as the first ones of this process.
  void begins_launch() noexcept { begins_launch_ = true; }
  /// Collective. Returns the exit code. Throws Divergence.
  int train(StopSignals& signals);
  /// Collective, after a Divergence: waits for the checkpoint under way. Returns the folder on rank 0, for the run that
  /// continues there. Throws comm::AgreedError if something else has failed, too.
  std::optional<io::RunFolder> leave();
  /// Rank 0's record is complete; others have only the step.
  io::TrainingRecord record() const;

 private:
  double epochs_done() const {
    return static_cast<double>(trainer_.epoch()) +
           static_cast<double>(trainer_.next_position()) / static_cast<double>(workload_.work.epoch_samples);
  }
  TimeSplit time() const {
    TimeSplit split = trainer_.time();
    split.total = running_.seconds() - interrupted_seconds_;
    return split;
  }
  bool finished() const { return target_reached_ || patience_.is_over(); }
  const char* how_it_ended() const;
  /// The last step of this launch (--stop-at).
  std::int64_t stop_step() const {
    const std::int64_t total = workload_.work.total_steps;
    const double step = run_.stop_at < 1 ? std::ceil(run_.stop_at * static_cast<double>(total)) : run_.stop_at;
    return run_.stop_at > 0 && step < static_cast<double>(total) ? static_cast<std::int64_t>(step) : total;
  }
  bool stops_here() const { return trainer_.steps_done() >= stop_step() && !last_step(); }
  bool last_step() const { return trainer_.steps_done() >= workload_.work.total_steps; }
  /// True if the event was due in the last step, or round of local steps.
  bool due(const Interval& every) const { return every.lies_between(steps_before_, trainer_.steps_done()); }
  /// The same before the step is made; with rounds, during their steps.
  bool will_be_due(const Interval& every) const {
    return every.lies_between(steps_before_, std::max(trainer_.steps_done(), steps_before_ + 1));
  }
  /// Checkpoints by the clock seldom coincide with a validation: the best validation so far causes its own checkpoint.
  bool saves_best() const { return run_.checkpoint_every.seconds > 0 && run_.keep_best > 0; }
  bool brings_best() const { return saves_best() && best_at_ == trainer_.steps_done(); }
  bool reached_target(double metric) const {
    return validation_.target_metric && !std::isnan(metric) && !better(*validation_.target_metric, metric);
  }
  bool better(double a, double b) const { return workload_.task->is_better(a, b); }
  void count_earlier_validations(const io::TrainingRecord& from);
  std::string nothing_left() const;
  void report(StepFigures figures);
  void histograms();
  void evaluate_now();
  void watch_loss(const StepFigures& figures);
  void check_own_shards();
  void require_unchanged_data();
  void save_now();
  void await_checkpoint();
  void report_checkpoint();
  void make_steps(StopSignals& signals);
  Trainer::Result make_step(StopSignals& signals);
  std::int64_t next_due() const;
  void record_arrivals(int server, const std::string& bytes);
  Trainer::Request next_request(StopSignals& signals);
  bool checkpoint_is_due();
  std::string summary() const;
  std::string beaten_by_constant() const;
  std::string faster_alone(const TimeSplit& split) const;
  std::string ending(const StopSignals& signals) const;
  template <class Work>
  void together(Work work);
  template <class Work>
  void keep_error(Work work);
  template <class Work>
  void on_rank0(Work work);

  const RunOptions& run_;
  const AgreeOptions& agree_;
  const ValidationOptions& validation_;
  const ReportOptions& reports_;
  const io::TrainingRecord& identity_;  ///< identity of the run, stored in each of its checkpoints
  const Workload& workload_;
  comm::Communicator& communicator_;
  Console& console_;
  Engine& engine_;
  model::Backend& backend_;
  model::Training& training_;
  bool waits_on_devices_;
  bool begins_launch_ = false;
  bool noted_ = false;  ///< the backend's notes after the first step have been reported
  Trainer& trainer_;
  WallTime wall_time_;                       ///< rank 0's decides for all
  std::function<void(DataPlace)> go_on_at_;  ///< moves this rank's reader to the samples of the steps from there on
  Checkpointer checkpointer_;
  Reporter reporter_;
  std::shared_ptr<io::RunFolder> folder_;  ///< rank 0; shared with the thread that writes a checkpoint
  std::string error_;                      ///< error of this rank between steps, reported in the next step
  StepFigures last_figures_;
  std::optional<Score> last_evaluation_;
  double best_metric_ = std::numeric_limits<double>::quiet_NaN();
  double best_loss_ = std::numeric_limits<double>::quiet_NaN();  ///< lowest loss with that metric
  Patience patience_;
  LossWatch loss_watch_;
  std::int64_t first_step_ = 0;  ///< steps done when this process began
  std::set<int> records_;        ///< servers whose records of arrivals this process has begun
  io::IoDeadline* io_deadline_ = nullptr;
  std::int64_t steps_before_ = 0;  ///< steps done when the last step, or round, began
  bool target_reached_ = false, stopped_ = false;
  bool told_to_save_ = false;     ///< rank 0, by a file in the run's folder
  bool owes_validation_ = false;  ///< the checkpoint was written where a validation was due, and before it
  std::int64_t evaluated_at_ = -1, saved_at_ = -1;
  std::int64_t best_at_ = -1;           ///< step of the best validation that this process has seen
  std::int64_t validated_before_ = -1;  ///< last step validated by the run that this one resumes
  std::filesystem::path saved_;         ///< rank 0: the newest checkpoint of this process
  std::filesystem::path best_saved_;    ///< rank 0: the best of the run, if there is one
  StopWatch running_;                   ///< time since train() was called
  StopWatch since_saved_, since_looked_;
  CheckpointRequests requests_;
  double interrupted_seconds_ = 0;  ///< part of running_ in evaluations and in waits for checkpoints
};

}  // namespace lockstep::app
