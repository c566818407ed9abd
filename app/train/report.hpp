/// \file
/// What a user sees of a running job: lines and a progress bar, metrics.jsonl, TensorBoard events. Rank 0 alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "app/engine/checkpointer.hpp"
#include "app/options/train_options.hpp"
#include "app/plan/task.hpp"
#include "app/plan/workload.hpp"
#include "app/report/console.hpp"
#include "app/report/step_figures.hpp"
#include "app/report/stop_watch.hpp"
#include "io/runs/metrics_log.hpp"
#include "io/runs/tensorboard_log.hpp"

namespace lockstep::app {

struct RunLogs {
  std::unique_ptr<io::MetricsLog> metrics;          ///< may be null
  std::unique_ptr<io::TensorboardLog> tensorboard;  ///< may be null
  std::function<void()> still_owner;                ///< throws where the logs belong to another process by now
};

class Reporter {
 public:
  /// console must outlive the reporter. A rank that does not speak has a console that is silent and no logs.
  Reporter(Console& console, const ReportOptions& options, const WorkPlan& work, const Task& task, int world,
           std::int64_t first_step);
  void attach(RunLogs logs) { logs_ = std::move(logs); }
  /// What a constant predictor reaches on the validation data stands beside what the network does.
  void compare_with(const std::optional<Score>& constant) { constant_ = constant; }
  /// Text that is equal for equal validation data: metrics of one are compared with each other.
  void validates_on(std::string data) { validation_data_ = std::move(data); }

  /// A launch that has steps to make: when it began, on how many ranks.
  void start(std::int64_t step, double epoch);
  /// Takes note of a step; shows a line when one is due (every report_every steps, or about every second, at the ends
  /// of epochs where they are few, and after the last step). `split` is the time since the start of the run. l2_loss is
  /// called only when a line is due.
  template <class L2Loss>
  void step(const StepFigures& figures, const TimeSplit& split, L2Loss l2_loss) {
    if (collect(figures, split)) report(figures, split, l2_loss());
  }
  /// A run that ends early: a line for the steps since the last one, if there are any.
  template <class L2Loss>
  void remaining(const StepFigures& figures, const TimeSplit& split, L2Loss l2_loss) {
    if (interval_.steps > 0) report(figures, split, l2_loss());
  }
  struct EvaluationTime {
    double seconds = 0;   ///< that it took
    double training = 0;  ///< of this launch before it: without validations and waits for checkpoints
  };
  void evaluation(std::int64_t step, double epoch, const Score& score, bool averaged, const EvaluationTime& time);
  void checkpoint(const WrittenCheckpoint& written);
  /// How training, the last validation and the best one compare, as a table: "" where there is nothing to compare.
  std::string summary() const;
  /// What the history is to know besides: course.hpp's records.
  void note(const io::MetricRecord& record);
  /// The last record of a run that made steps: "done", "target reached", "no improvement" or "stopped".
  void end(std::int64_t step, const std::string& how);
  void histogram(const std::string& tag, std::int64_t step, std::span<const float> values);
  /// Validation lines of metrics.jsonl so far, and what was noted: the history that checkpoints carry.
  const std::string& history() const noexcept { return history_; }
  void set_history(std::string history) { history_ = std::move(history); }

 private:
  /// Sums over some steps.
  struct Sums {
    double loss = 0, metric = 0, samples = 0;
    std::int64_t steps = 0;
    void add(const StepFigures& figures, std::int64_t made);
  };
  Score score_of(const Sums& sums) const;
  bool is_due(const StepFigures& figures) const;
  bool collect(const StepFigures& figures, const TimeSplit& split);
  void report(const StepFigures& figures, const TimeSplit& split, double l2_loss);
  void check_owner() const;
  void write(const io::MetricRecord& record);
  void scalar(const std::string& tag, std::int64_t step, double value);

  Console& console_;
  const ReportOptions& options_;
  WorkPlan work_;
  Task task_;
  int world_;
  RunLogs logs_;
  Sums interval_;              ///< since the last line
  Sums since_validation_;      ///< or since the launch
  std::optional<Score> seen_;  ///< of the steps before the last validation; of a run without one: of the last line
  std::int64_t seen_at_ = 0;   ///< the last of those steps
  bool validated_ = false;
  std::optional<Score> constant_;
  std::string validation_data_;
  std::optional<double> best_;  ///< metric of the validations of this launch
  TimeSplit interval_start_;
  StopWatch since_line_, since_bar_, since_start_;
  std::int64_t first_step_, last_step_;
  std::string history_;
};

}  // namespace lockstep::app
