/// \file
/// The content of a run's folder: options, plan, and the records of its metrics, as curves and as a summary.
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

/// The number under `key`; nullopt if there is none, or a NaN.
std::optional<double> number_of(const io::MetricRecord& record, std::string_view key);
/// The text under `key`; "" if there is none.
std::string string_of(const io::MetricRecord& record, std::string_view key);

struct RunHistory {
  std::filesystem::path folder;
  std::string name;  ///< the user's spelling of the folder
  /// Options that have an effect, and their values. Empty if config.ini cannot be read.
  std::vector<std::pair<std::string, std::string>> options{};
  std::string configuration{};  ///< content of config.ini
  std::string plan{};           ///< output of the newest launch before its first step
  std::vector<io::MetricRecord> records{};
  std::string metric{};  ///< key of its metric: "accuracy"; "": no record has a metric
  /// Equal for runs that validate on the same data; "": the records do not contain it, and validation_path counts.
  std::string validation_data{};
  std::string validation_path{};  ///< path of the validation data, or of the data that they are a part of, according to
                                  ///< the options
  std::string problem{};          ///< error in config.ini; "": none
};

/// Throws io::FileError if the folder contains no run.
RunHistory read_run(const std::filesystem::path& folder, const std::string& name);
/// The runs in these folders. Each is a run's folder, or a folder of such folders, whose runs follow in the order of
/// their names (2 before 10). Throws io::FileError.
std::vector<RunHistory> read_runs(const std::vector<std::filesystem::path>& folders);

/// The axis on which to compare these runs: steps or epochs.
Progress progress_of(const std::vector<RunHistory>& runs);
/// "step", "epoch", "time": the title of that axis.
const char* axis_of(Progress along);
/// The values under `key` in records of this kind. `along` is not automatic.
std::vector<ChartPoint> curve_of(const RunHistory& run, std::string_view kind, std::string_view key, Progress along);

/// Time that a record adds to its run.
double seconds_of(const io::MetricRecord& record);

/// Results of a run.
struct RunSummary {
  std::int64_t steps = 0;
  double epochs = 0;
  /// Values of the steps before the last validation; of the last report if there is no validation, or if it lacks them.
  std::optional<double> training_loss, training_metric;
  std::optional<double> validation_loss, validation_metric;  ///< results of the last validation
  std::optional<double> best;                                ///< best metric of all validations
  std::int64_t best_step = 0;
  double rate = 0;  ///< samples (or tokens) per second, over all steps
  bool tokens = false;
  TimeSplit split;  ///< times of all steps
  double validation_seconds = 0, checkpoint_seconds = 0;
  std::int64_t starts = 0;  ///< number of launches that made steps; 0: not recorded by older runs
  std::string state;        ///< "done", "stopped" …; "": has not ended: it trains, or was killed
};
RunSummary summary_of(const RunHistory& run);

/// True if metric `a` is better than `b`.
bool is_better_metric(std::string_view key, double a, double b);
/// "86.20 %", "6.507".
std::string format_metric(std::string_view key, double value);
/// "mean absolute error".
std::string metric_words(std::string_view key);

}  // namespace lockstep::app
