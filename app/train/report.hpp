/// \file
/// Reports of a running job: lines on the console, a progress bar, metrics.jsonl and TensorBoard events. Only rank 0
/// reports.
#pragma once

#include <array>
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
#include "app/plan/work_plan.hpp"
#include "app/report/console.hpp"
#include "app/report/step_figures.hpp"
#include "app/report/stop_watch.hpp"
#include "io/runs/metrics_log.hpp"
#include "io/runs/tensorboard_log.hpp"

namespace lockstep::app {

struct LogFiles {
  std::unique_ptr<io::MetricsLog> metrics;          ///< may be null
  std::unique_ptr<io::TensorboardLog> tensorboard;  ///< may be null
  std::function<void()> still_owner;                ///< throws if another process owns the logs now
};

class Reporter {
 public:
  /// `console` must outlive the reporter. A rank that does not report has a silent console and no logs.
  Reporter(Console& console, const ReportOptions& options, const WorkPlan& work, const Task& task, int world,
           std::int64_t first_step);
  void attach(LogFiles files) { files_ = std::move(files); }
  /// Sets the constant predictor's score on the validation data, which is reported beside the network's.
  void compare_with(const std::optional<Score>& constant) { constant_ = constant; }
  /// Sets the text that identifies the validation data. Metrics are comparable only between runs with equal text.
  /// `files`: the text without the contents of the files, which older versions knew alone.
  void validates_on(std::string data, std::string files) {
    validation_data_ = std::move(data);
    validation_files_ = std::move(files);
  }

  /// Records the start of a launch that has steps to make, with the time and the number of ranks.
  void start(std::int64_t step, double epoch);
  /// Records a step, and shows a line if one is due. A line is due every `every` steps; if `every` is 0, about every
  /// second and, in runs of few epochs, at the end of each epoch. The last step always has a line. `split`: time in
  /// steps since the run began in this process. Calls `l2_loss` only if a line is due.
  template <class L2Loss>
  void step(const StepFigures& figures, const TimeSplit& split, L2Loss l2_loss) {
    if (collect(figures, split)) report(figures, split, l2_loss());
  }
  /// Shows a line for the steps since the last line, if there are any. Call when a run ends early.
  template <class L2Loss>
  void remaining(const StepFigures& figures, const TimeSplit& split, L2Loss l2_loss) {
    if (interval_.steps > 0) report(figures, split, l2_loss());
  }
  struct EvaluationTime {
    double seconds = 0;   ///< duration of the validation
    double training = 0;  ///< training time of this launch before it, without validations and waits for checkpoints
    bool counts = true;   ///< false: made only because the run stops (Validation::Counts)
  };
  /// Key of the records of validations that do not count.
  static constexpr const char* kNotCounted = "only_at_stop";
  void evaluation(std::int64_t step, double epoch, const Score& score, bool averaged, const EvaluationTime& time);
  void checkpoint(const WrittenCheckpoint& written);
  /// Returns a table that compares training, the last validation and the best one; "" if there is nothing to compare.
  std::string summary() const;
  /// Adds one of the events of app/plan/origin.hpp to the metrics and to the history.
  void add_event(const io::MetricRecord& record);
  /// Writes the last record of a run that made steps. `how`: "done", "target reached", "no improvement" or "stopped".
  void end(std::int64_t step, const std::string& how);
  void histogram(const std::string& tag, std::int64_t step, std::span<const float> values);
  /// The history that checkpoints contain: the validation lines of metrics.jsonl so far, without times, and the records
  /// of add_event().
  const std::string& history() const noexcept { return history_; }
  void set_history(std::string history) { history_ = std::move(history); }

 private:
  /// Sums over some steps.
  struct Sums {
    double loss = 0, metric = 0, samples = 0;
    std::array<double, model::kMaxLosses> losses = {};
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
  LogFiles files_;
  Sums interval_;              ///< sums since the last line
  Sums since_validation_;      ///< sums since the last validation, or since the launch
  std::optional<Score> seen_;  ///< training score before the last validation; without validations: in the last line
  std::int64_t seen_at_ = 0;   ///< step of that score
  bool validated_ = false;
  std::optional<Score> constant_;
  std::string validation_data_, validation_files_;
  std::optional<double> best_;  ///< best metric of this launch's validations
  TimeSplit interval_start_;
  StopWatch since_line_, since_bar_, since_start_;
  std::int64_t first_step_, last_step_;
  std::string history_;
};

}  // namespace lockstep::app
