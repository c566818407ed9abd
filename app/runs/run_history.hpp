/// \file
/// The content of a run's folder: options, plan and metrics, as curves and as a summary.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/report/chart.hpp"
#include "app/report/step_figures.hpp"
#include "app/runs/progress.hpp"
#include "io/runs/metrics_log.hpp"

namespace lockstep::app {

/// The number under `key`; nullopt if there is none or it is NaN.
std::optional<double> number_of(const io::MetricRecord& record, std::string_view key);
/// The text under `key`; "" if there is none.
std::string string_of(const io::MetricRecord& record, std::string_view key);

struct RunHistory {
  std::filesystem::path folder;
  std::string name;  ///< the user's spelling of the folder
  /// Options that have an effect, with their values. Empty if config.ini cannot be read.
  std::vector<std::pair<std::string, std::string>> options{};
  std::string configuration{};  ///< content of config.ini
  std::string plan{};           ///< output of the newest launch before its first step
  std::vector<io::MetricRecord> records{};
  std::string metric{};  ///< key of the run's metric: "accuracy"; "": no record has a metric
  /// Identifies the validation data: equal for runs on the same data. "": not recorded, and validation_path is compared
  /// instead.
  std::string validation_data{};
  /// The same without the contents of the files; "": validation_data is that, as in runs of older versions and on
  /// packed data.
  std::string validation_files{};
  /// Path of the validation data, or of the data that they are split from, according to the options.
  std::string validation_path{};
  std::string problem{};  ///< error in config.ini; "": none
};

/// Throws io::FileError if the folder contains no run.
RunHistory read_run(const std::filesystem::path& folder, const std::string& name);
/// Reads the runs in these folders. A folder is a run's folder, or contains run folders; these follow in the order of
/// their names (2 before 10). Throws io::FileError.
std::vector<RunHistory> read_runs(const std::vector<std::filesystem::path>& folders);

/// The axis on which these runs are compared: steps or epochs.
Progress progress_of(const std::vector<RunHistory>& runs);
/// The title of that axis: "step", "epoch", "time".
const char* axis_of(Progress along);
/// The values under `key` in records of this kind. `along` must not be automatic.
std::vector<ChartPoint> curve_of(const RunHistory& run, std::string_view kind, std::string_view key, Progress along);

/// Seconds that a record adds to its run.
double seconds_of(const io::MetricRecord& record);

/// Results of a run.
struct RunSummary {
  std::int64_t steps = 0;
  double epochs = 0;
  /// Values over the steps before the last validation. Without a validation, or if it lacks them, values of the last
  /// report.
  std::optional<double> training_loss, training_metric;
  std::optional<double> validation_loss, validation_metric;  ///< results of the last validation
  std::optional<double> best;                                ///< best metric of all validations
  std::int64_t best_step = 0;
  /// Losses of the validation at `best_step`, and of the steps before it.
  std::optional<double> best_validation_loss, best_training_loss;
  double rate = 0;              ///< samples (or tokens) per second, over all steps
  double steps_per_second = 0;  ///< without the steps of another run that this one went on from
  bool tokens = false;
  TimeSplit split;  ///< times of all steps
  double validation_seconds = 0, checkpoint_seconds = 0;
  std::int64_t starts = 0;  ///< number of launches that made steps; 0: not recorded by older runs
  std::string state;        ///< "done", "stopped" …; "": the run has not ended: it trains, or was killed
};
RunSummary summary_of(const RunHistory& run);

/// True if metric `a` is better than `b`.
bool is_better_metric(std::string_view key, double a, double b);
/// "86.20 %", "6.507".
std::string format_metric(std::string_view key, double value);
/// "mean absolute error".
std::string metric_words(std::string_view key);

}  // namespace lockstep::app
