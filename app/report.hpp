/// \file
/// What a user sees of a running job: lines and a progress bar, metrics.jsonl, TensorBoard events. Rank 0 alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app/console.hpp"
#include "app/evaluate.hpp"
#include "app/options.hpp"
#include "app/task.hpp"
#include "app/workload.hpp"
#include "io/metrics_log.hpp"
#include "io/tensorboard_log.hpp"

namespace lockstep::app {

/// Seconds since construction or since the last lap.
class StopWatch {
 public:
  double lap() noexcept {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - start_).count();
    start_ = now;
    return seconds;
  }
  double seconds() const noexcept {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Where the seconds of some steps went, on this rank.
struct TimeSplit {
  double input = 0;          ///< waiting for samples
  double compute = 0;        ///< forward, backward, update
  double communication = 0;  ///< exposed: this thread waited for it
  double total = 0;          ///< wall clock, without evaluations and checkpoints
  double other() const noexcept { return total - input - compute - communication; }  ///< between the steps: reports
};
/// "input 0.1 %  compute 84 %  communication 14 %  other 2 %"
std::string format_split(const TimeSplit& split);

/// One finished step; sums are over all ranks.
struct StepFigures {
  std::int64_t step = 0;  ///< updates done
  double epoch = 0;       ///< epochs done, as a fraction
  double loss_sum = 0;
  double metric_sum = 0;
  double samples = 0;
  double learning_rate = 0;
  double gradient_norm = 0;
};

/// Collective: rank 0 writes one JSON object with a newline to `file`, which may be a device; nothing when `file` is
/// empty. Throws comm::AgreedError.
void write_json(comm::Communicator& communicator, const std::filesystem::path& file, const io::MetricRecord& record);

struct RunLogs {
  std::unique_ptr<io::MetricsLog> metrics;          ///< may be null
  std::unique_ptr<io::TensorboardLog> tensorboard;  ///< may be null
  std::function<void()> still_owner;                ///< throws where the logs belong to another process by now
};

class Reporter {
 public:
  /// console must outlive the reporter. A rank that does not speak has a console that is silent and no logs.
  Reporter(Console& console, const TrainOptions& options, const WorkPlan& work, const Task& task, int world,
           std::int64_t first_step);
  void attach(RunLogs logs) { logs_ = std::move(logs); }

  /// Takes note of a step; shows a line when one is due (every report_every steps, or about every second, and after the
  /// last step). `split` is the time since the start of the run. l2_loss is called only when a line is due.
  template <class L2Loss>
  void step(const StepFigures& figures, const TimeSplit& split, L2Loss l2_loss) {
    if (collect(figures, split)) report(figures, split, l2_loss());
  }
  /// A run that ends early: a line for the steps since the last one, if there are any.
  template <class L2Loss>
  void remaining(const StepFigures& figures, const TimeSplit& split, L2Loss l2_loss) {
    if (interval_steps_ > 0) report(figures, split, l2_loss());
  }
  void evaluation(std::int64_t step, double epoch, const Score& score, bool averaged, double seconds);
  void checkpoint(std::int64_t step, const std::filesystem::path& file, double seconds);
  void histogram(const std::string& tag, std::int64_t step, std::span<const float> values);
  /// Validation lines of metrics.jsonl so far: the history that checkpoints carry.
  const std::string& history() const noexcept { return history_; }
  void set_history(std::string history) { history_ = std::move(history); }

 private:
  bool collect(const StepFigures& figures, const TimeSplit& split);
  void report(const StepFigures& figures, const TimeSplit& split, double l2_loss);
  void check_owner() const;
  void write(const io::MetricRecord& record);
  void scalar(const std::string& tag, std::int64_t step, double value);

  Console& console_;
  const TrainOptions& options_;
  WorkPlan work_;
  Task task_;
  int world_;
  RunLogs logs_;
  StepFigures interval_;  ///< sums since the last line
  std::int64_t interval_steps_ = 0;
  TimeSplit interval_start_;
  StopWatch since_line_, since_bar_, since_start_;
  std::int64_t first_step_;
  std::string history_;
};

}  // namespace lockstep::app
