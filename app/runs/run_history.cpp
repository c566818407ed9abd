#include "app/runs/run_history.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <sstream>

#include <fmt/format.h>

#include "app/options/stored_options.hpp"
#include "app/plan/task.hpp"
#include "io/files/durable_file.hpp"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;

bool holds_run(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "metrics.jsonl", ignored) || fs::exists(folder / "config.ini", ignored);
}

/// Returns the output of the last launch before its first figures. A launch begins with a line of the program's
/// version.
std::string plan_in(const std::string& log) {
  std::string plan;
  bool before_steps = false;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("lockstep ")) {
      plan.clear();
      before_steps = true;
    }
    for (const char* figures : {"step ", "validation at step ", "checkpoint ", "done at step ", "stopped at step "}) {
      before_steps = before_steps && !line.starts_with(figures);
    }
    if (before_steps) plan += line + "\n";
  }
  return plan;
}

bool is_in(const std::vector<io::MetricRecord>& records, std::string_view key) {
  return std::ranges::any_of(records, [&](const io::MetricRecord& record) {
    return std::ranges::any_of(record, [&](const auto& entry) { return entry.first == key; });
  });
}

/// Returns the key of the metric by which the run compares its validations; "" if no record has it.
std::string metric_in(const std::vector<io::MetricRecord>& records, BestBy by) {
  if (by == BestBy::accuracy && is_in(records, "class_accuracy")) return "class_accuracy";
  if (by != BestBy::usual) return key_of(by);
  for (const char* key : Task::metric_keys()) {
    if (is_in(records, key)) return key;
  }
  return "";
}

void find_validation_data(RunHistory& run) {
  for (const io::MetricRecord& record : run.records) {
    std::string said = string_of(record, "validation_data");
    if (said.empty()) continue;
    run.validation_data = std::move(said);
    run.validation_files = string_of(record, "validation_files");
  }
  std::string data, validation;
  for (const auto& [name, value] : run.options) {
    if (name == "data") data = value;
    if (name == "validation") validation = value;
  }
  // Makes a path relative to the working folder if it is below that folder.
  const auto near = [](const std::string& path) {
    std::error_code unknown;
    const fs::path from_here = fs::path(path).lexically_proximate(fs::current_path(unknown));
    return from_here.empty() || *from_here.begin() == ".." ? path : from_here.string();
  };
  double share = 0;
  const auto [end, error] = std::from_chars(validation.data(), validation.data() + validation.size(), share);
  const bool is_share = error == std::errc{} && end == validation.data() + validation.size() && share < 1;
  run.validation_path = validation.empty() ? near(data)
                        : is_share         ? fmt::format("{:g} % of {}", 100 * share, near(data))
                                           : near(validation);
}

/// Compares names with their numbers: "2" is before "10".
bool is_named_before(const fs::path& a, const fs::path& b) {
  const auto number = [](const fs::path& path) {
    const std::string name = path.filename().string();
    return !name.empty() && name.find_first_not_of("0123456789") == std::string::npos ? std::stod(name) : -1.0;
  };
  return std::pair(number(a), a.filename()) < std::pair(number(b), b.filename());
}

}  // namespace

std::optional<double> number_of(const io::MetricRecord& record, std::string_view key) {
  for (const auto& [name, value] : record) {
    if (name != key) continue;
    if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
    if (const auto* real = std::get_if<double>(&value); real != nullptr && std::isfinite(*real)) return *real;
  }
  return std::nullopt;
}

std::string string_of(const io::MetricRecord& record, std::string_view key) {
  for (const auto& [name, value] : record) {
    if (const auto* text = std::get_if<std::string>(&value); name == key && text != nullptr) return *text;
  }
  return "";
}

RunHistory read_run(const fs::path& folder, const std::string& name) {
  RunHistory run{.folder = folder, .name = name};
  if (!holds_run(folder)) {
    throw io::FileError(
        fmt::format("{} is no run folder: it holds no metrics.jsonl; give the folder that --run of "
                    "`lockstep train` named",
                    folder.string()));
  }
  run.records = io::all_records(folder / "metrics.jsonl");
  run.metric = metric_in(run.records, BestBy::usual);
  run.plan = plan_in(io::read_whole(folder / "log.txt").value_or(""));
  run.configuration = io::read_whole(folder / "config.ini").value_or("");
  const std::string network = io::read_whole(folder / kNetworkFile).value_or("");
  try {
    const StoredRun stored{.configuration = run.configuration, .network = network};
    run.options = effective_options(stored);
    run.metric = metric_in(run.records, inference_options_of(stored).validation.best_by);
  } catch (const UsageError& error) {
    run.problem = fmt::format("{} cannot be read back: {}", (folder / "config.ini").string(), error.what());
  }
  find_validation_data(run);
  return run;
}

std::vector<RunHistory> read_runs(const std::vector<fs::path>& folders) {
  std::vector<RunHistory> runs;
  for (fs::path folder : folders) {
    if (!folder.has_filename()) folder = folder.parent_path();  // "runs/sweep/"
    std::error_code ignored;
    std::vector<fs::path> inside;
    if (!holds_run(folder) && fs::is_directory(folder, ignored)) {
      for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
        if (entry.is_directory() && holds_run(entry.path())) inside.push_back(entry.path());
      }
    }
    std::sort(inside.begin(), inside.end(), is_named_before);
    if (inside.empty()) inside.push_back(folder);
    for (const fs::path& each : inside) runs.push_back(read_run(each, each.string()));
  }
  return runs;
}

double seconds_of(const io::MetricRecord& record) {
  const auto number = [&](std::string_view key) { return number_of(record, key).value_or(0); };
  const std::string kind = string_of(record, "kind");
  if (kind == "train") {
    return number("input_seconds") + number("compute_seconds") + number("communication_seconds") +
           number("other_seconds");
  }
  return kind == "validation" ? number("seconds") : kind == "checkpoint" ? number("stall_seconds") : 0;
}

Progress progress_of(const std::vector<RunHistory>& runs) {
  double least = HUGE_VAL, most = 0;
  for (const RunHistory& run : runs) {
    for (const io::MetricRecord& record : run.records) {
      const auto step = number_of(record, "step"), epoch = number_of(record, "epoch");
      if (!step || !epoch || *epoch <= 0) continue;
      least = std::min(least, *step / *epoch);
      most = std::max(most, *step / *epoch);
    }
  }
  return most > 1.05 * least ? Progress::epochs : Progress::steps;
}

const char* axis_of(Progress along) {
  return along == Progress::time ? "time" : along == Progress::epochs ? "epoch" : "step";
}

std::vector<ChartPoint> curve_of(const RunHistory& run, std::string_view kind, std::string_view key, Progress along) {
  std::vector<ChartPoint> points;
  double seconds = 0;
  for (const io::MetricRecord& record : run.records) {
    seconds += seconds_of(record);
    if (string_of(record, "kind") != kind) continue;
    const std::optional<double> x = along == Progress::time ? seconds : number_of(record, axis_of(along));
    const auto y = number_of(record, key);
    if (x && y) points.push_back({*x, *y});
  }
  return points;
}

RunSummary summary_of(const RunHistory& run) {
  RunSummary summary;
  double samples = 0, steps_made = 0, from_step = 0;
  for (const io::MetricRecord& record : run.records) {
    const std::string kind = string_of(record, "kind");
    const auto number = [&](std::string_view key) { return number_of(record, key).value_or(0); };
    if (kind == "train") {
      summary.steps = std::llround(number("step"));
      summary.epochs = number("epoch");
      summary.training_loss = number_of(record, "loss");
      summary.training_metric = number_of(record, run.metric);
      const double total = seconds_of(record);
      summary.split.input += number("input_seconds");
      summary.split.compute += number("compute_seconds");
      summary.split.communication += number("communication_seconds");
      summary.split.total += total;
      const std::optional<double> tokens = number_of(record, "tokens_per_second");
      summary.tokens = tokens.has_value();
      samples += total * tokens.value_or(number("samples_per_second"));
      steps_made += number("step") - from_step;
      from_step = number("step");
      summary.state.clear();
    } else if (kind == "validation") {
      summary.validation_loss = number_of(record, "loss");
      summary.validation_metric = number_of(record, run.metric);
      summary.validation_seconds += number("seconds");
      if (const auto loss = number_of(record, "training_loss")) {  // a mean over more steps than a report
        summary.training_loss = loss;
        summary.training_metric = number_of(record, "training_" + run.metric);
      }
      const std::optional<double>& metric = summary.validation_metric;
      constexpr double kNoLoss = std::numeric_limits<double>::infinity();
      const bool is_lower = summary.validation_loss.value_or(kNoLoss) < summary.best_validation_loss.value_or(kNoLoss);
      const bool equal = metric && summary.best && !is_better_metric(run.metric, *summary.best, *metric);
      if (metric && (!summary.best || is_better_metric(run.metric, *metric, *summary.best) || (equal && is_lower))) {
        summary.best = metric;
        summary.best_validation_loss = summary.validation_loss;
        summary.best_training_loss = summary.training_loss;
        summary.best_step = std::llround(number("step"));
      }
    } else if (kind == "checkpoint") {
      summary.checkpoint_seconds += number("stall_seconds");
    } else if (kind == "start") {
      ++summary.starts;
      from_step = number("step");
      summary.state.clear();
    } else if (kind == "end") {
      summary.state = string_of(record, "how");
    }
  }
  if (summary.split.total > 0) {
    summary.rate = samples / summary.split.total;
    summary.steps_per_second = steps_made / summary.split.total;
  }
  return summary;
}

bool is_better_metric(std::string_view key, double a, double b) {
  return key == "loss" || key == "mean_absolute_error" || key == "perplexity" ? a < b : a > b;
}

std::string format_metric(std::string_view key, double value) {
  return key.ends_with("accuracy") ? fmt::format("{:.2f} %", 100 * value) : fmt::format("{:.5g}", value);
}

std::string metric_words(std::string_view key) {
  if (key == "f1") return "F1";
  if (key == "f1_macro") return "F1 (macro)";
  if (key == "roc_auc") return "ROC AUC";
  if (key == "mean_iou") return "mean IoU";
  std::string words(key);
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

}  // namespace lockstep::app
