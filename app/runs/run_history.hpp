/// \file
/// What the folder of a run tells of it: options, plan, and the records of its metrics, as curves and as a summary.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/options/progress.hpp"
#include "app/report/chart.hpp"
#include "app/report/step_figures.hpp"
#include "io/runs/metrics_log.hpp"

namespace lockstep::app {

/// The number under `key`; nullopt where there is none, or a NaN.
std::optional<double> number_of(const io::MetricRecord& record, std::string_view key);
/// The text under `key`; "" where there is none.
std::string string_of(const io::MetricRecord& record, std::string_view key);

struct RunHistory {
  std::filesystem::path folder;
  std::string name;  ///< as the user wrote the folder
  /// Those that have an effect, and their values. Empty where config.ini cannot be read.
  std::vector<std::pair<std::string, std::string>> options{};
  std::string configuration{};  ///< config.ini as it is
  std::string plan{};           ///< what the newest launch printed before its first step
  std::vector<io::MetricRecord> records{};
  std::string metric{};  ///< its key: "accuracy"; "": there are no records that have one
  /// Equal for runs that validate on the same data; "": their records do not tell, and validation_path counts.
  std::string validation_data{};
  std::string validation_path{};  ///< as the options name the data that validate, or of which a part does
  std::string problem{};          ///< of config.ini; "": none
};

/// Throws io::FileError where the folder holds no run.
RunHistory read_run(const std::filesystem::path& folder, const std::string& name);
/// The runs that these words name: a run's folder, or a folder of such folders, whose runs follow in the order of their
/// names (2 before 10). Throws io::FileError.
std::vector<RunHistory> read_runs(const std::vector<std::filesystem::path>& folders);

/// Steps or epochs, as these runs are compared.
Progress progress_of(const std::vector<RunHistory>& runs);
/// "step", "epoch", "time": the title of that axis.
const char* axis_of(Progress along);
/// The values under `key` in records of this kind. `along` is not automatic.
std::vector<ChartPoint> curve_of(const RunHistory& run, std::string_view kind, std::string_view key, Progress along);

/// What a record adds to the time of its run.
double seconds_of(const io::MetricRecord& record);

/// What a run has come to.
struct RunSummary {
  std::int64_t steps = 0;
  double epochs = 0;
  /// Of the steps before the last validation; of the last report where there is none, or where it does not tell.
  std::optional<double> training_loss, training_metric;
  std::optional<double> validation_loss, validation_metric;  ///< of the last validation
  std::optional<double> best;                                ///< metric of all validations
  std::int64_t best_step = 0;
  double rate = 0;  ///< samples (or tokens) per second, over all steps
  bool tokens = false;
  TimeSplit split;  ///< of all steps
  double validation_seconds = 0, checkpoint_seconds = 0;
  std::int64_t starts = 0;  ///< launches that made steps; 0: older runs do not tell
  std::string state;        ///< "done", "stopped" …; "" has not ended: it trains, or was killed
};
RunSummary summary_of(const RunHistory& run);

/// Whether metric `a` is better than `b`.
bool is_better_metric(std::string_view key, double a, double b);
/// "86.20 %", "6.507".
std::string format_metric(std::string_view key, double value);
/// "mean absolute error".
std::string metric_words(std::string_view key);

}  // namespace lockstep::app
