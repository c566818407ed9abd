#include "app/runs/sweep.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app/options/usage_error.hpp"
#include "app/plan/workload.hpp"
#include "app/report/console.hpp"
#include "app/report/exit_code.hpp"
#include "app/report/figures.hpp"
#include "app/report/stop_watch.hpp"
#include "app/runs/launched_process.hpp"
#include "app/runs/run_history.hpp"
#include "app/runs/run_ranking.hpp"
#include "io/files/durable_file.hpp"
#include "io/files/file_error.hpp"
#include "io/text/shell_word.hpp"
#include "io/text/utf8.hpp"
#include "io/text/visible_text.hpp"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;

/// Seconds within which a launcher must notice that all its processes have ended.
constexpr double kMaxUnnoticed = 10;

/// The metric that judges a setting.
struct SettingMetric {
  std::int64_t setting = 0;
  std::string key = {};
};

/// Returns why these settings cannot be compared.
std::string two_metrics(const SettingMetric& a, const SettingMetric& b) {
  return fmt::format(
      "setting {} is judged by its {}, setting {} by its {}: --halving needs one metric for all: give one "
      "--best-by",
      a.setting, metric_words(a.key), b.setting, metric_words(b.key));
}

/// Returns the key of the metric by which a training with these options compares its validations; nullopt if only the
/// training can tell, because its network comes from a checkpoint or its files cannot be read here. Throws UsageError.
std::optional<std::string> metric_of(const TrainOptions& options) {
  if (!options.start.from.empty()) return std::nullopt;
  try {
    const Workload workload = prepare_workload(options, 1);
    if (!workload.validation) throw UsageError("--halving needs data for validation: name them with --validation");
    return workload.task->best_key();
  } catch (const io::FileError&) {
    return std::nullopt;
  }
}

/// Throws UsageError if the settings tell before any training that --halving cannot compare their results.
void require_one_metric(const SweepOptions& options) {
  std::optional<SettingMetric> first;
  for (std::size_t i = 0; i < options.lines.size(); ++i) {
    const SweepSetting& setting = options.lines[i];
    const auto number = static_cast<std::int64_t>(i + 1);
    try {
      const std::optional<std::string> key = metric_of(setting.options);
      if (!key) continue;
      if (!first) first = {.setting = number, .key = *key};
      if (first->key != *key) throw UsageError(two_metrics(*first, {.setting = number, .key = *key}));
    } catch (const UsageError& error) {
      throw UsageError(
          fmt::format("{}, setting {} ({}): {}", options.settings.string(), number, setting.line, error.what()));
    }
  }
}

class Sweep {
 public:
  Sweep(const SweepOptions& options, StopSignals& signals)
      : options_(options), signals_(signals), folder_(options.run), rungs_(options.halving ? rungs_of(count()) : 1) {}

  int run() {
    std::vector<std::int64_t> settings(options_.lines.size());
    std::iota(settings.begin(), settings.end(), 1);
    console_.info(fmt::format("{} of {}{}; runs in {}", counted(count(), "setting"), options_.settings.string(),
                              rungs_ > 1 ? fmt::format(", halved in {} rungs", rungs_) : "", options_.run.string()));
    for (std::int64_t rung = 0; rung < rungs_; ++rung) {
      if (!finish_rung(rung, settings)) {
        console_.info("stopped on request; the same command goes on");
        return kExitStoppedEarly;
      }
      if (rung + 1 < rungs_) settings = next(rung, settings);
    }
    return tell();
  }

 private:
  std::int64_t count() const { return static_cast<std::int64_t>(options_.lines.size()); }
  const SweepSetting& setting(std::int64_t number) const {
    return options_.lines[static_cast<std::size_t>(number - 1)];
  }

  std::optional<SweepResult> result(const SweepTask& task) const {
    std::optional<SweepResult> found = folder_.result(task);
    if (found && found->line != io::readable(setting(task.setting).line)) {
      throw io::FileError(
          fmt::format("{} is of the options '{}', and setting {} is '{}' now: settings that have changed "
                      "need another --run",
                      folder_.result_file(task).string(), found->line, task.setting, setting(task.setting).line));
    }
    return found;
  }

  /// Returns false if a signal stopped the sweep.
  bool finish_rung(std::int64_t rung, const std::vector<std::int64_t>& settings) {
    for (bool told = false;;) {
      std::int64_t waiting = 0;
      bool worked = false;
      for (const std::int64_t number : settings) {
        const SweepTask task{.rung = rung, .setting = number};
        if (signals_.stop_requested()) return false;
        if (result(task)) continue;
        if (!folder_.claim(task)) {
          ++waiting;
          continue;
        }
        if (!result(task) && !train(task)) return false;
        folder_.release();
        worked = true;
      }
      if (waiting == 0) return true;
      if (worked) continue;
      if (!std::exchange(told, true)) {
        console_.info(fmt::format("{} with other processes: waiting for them", counted(waiting, "training")));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
  }

  /// Returns false if a signal stopped the sweep.
  bool train(const SweepTask& task) {
    const StopWatch watch;
    const bool last = task.rung + 1 == rungs_;
    const fs::path run = options_.run / std::to_string(task.setting);
    std::vector<std::string> words = options_.launch;
    words.insert(words.end(), {fs::read_symlink("/proc/self/exe").string(), "train"});
    const SweepSetting& its = setting(task.setting);
    words.insert(words.end(), its.arguments.begin(), its.arguments.end());
    words.insert(words.end(), {"--run=" + run.string(), "--resume"});
    const bool says_progress = std::any_of(its.arguments.begin(), its.arguments.end(),
                                           [](const std::string& word) { return word.starts_with("--progress"); });
    if (!says_progress) words.emplace_back("--progress=off");
    if (!last) words.push_back(fmt::format("--stop-at={}", share_of_steps(task.rung, rungs_)));
    const int code = finish(start_process(words, folder_.words_of(task.setting)));
    if (signals_.stop_requested()) return false;
    if (!folder_.holds()) {  // this process was suspended for a long time
      console_.info(fmt::format("{}: another process has taken it over", run.string()));
      return true;
    }
    SweepResult result{.line = its.line, .metric_key = "", .metric = std::nullopt, .exit_code = code};
    const bool complete = code == kExitDone || (code == kExitStoppedEarly && !last);
    if (code == kExitStoppedEarly && last) {
      throw io::FileError(fmt::format("{} was stopped before its end; the same command goes on", run.string()));
    }
    if (complete) {
      const RunHistory history = read_run(run, run.string());
      result.metric_key = history.metric;
      result.metric = summary_of(history).best;
    }
    folder_.record(task, result);
    const std::string outcome =
        !complete ? fmt::format("failed: exit code {}, see {}", code, folder_.words_of(task.setting).string())
        : result.metric
            ? fmt::format("{} {}", metric_words(result.metric_key), format_metric(result.metric_key, *result.metric))
            : std::string("no validation");
    console_.info(fmt::format("{}{}  {}  {}  in {:.1f} s",
                              rungs_ > 1 ? fmt::format("rung {}/{}  ", task.rung + 1, rungs_) : "", run.string(),
                              its.line, outcome, watch.seconds()));
    return true;
  }

  /// Waits for a training. Returns its exit code, or 128 plus the signal that ended it.
  int finish(pid_t process) {
    bool told = false;
    StopWatch since_sign, since_alive;
    for (int status = 0;;) {
      if (!waits_for_the_dead(process)) since_alive.lap();
      if (since_alive.seconds() > kMaxUnnoticed) kill(process, SIGKILL);
      const pid_t ended = waitpid(process, &status, WNOHANG);
      if (ended == process) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      if (ended < 0 && errno != EINTR) throw io::FileError(fmt::format("a training is lost: {}", std::strerror(errno)));
      if (signals_.stop_requested() && !std::exchange(told, true)) kill(process, SIGUSR1);
      if (since_sign.seconds() > SweepFolder::kHeartbeat) {
        folder_.still_here();
        since_sign.lap();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  std::vector<std::int64_t> next(std::int64_t rung, const std::vector<std::int64_t>& settings) const {
    std::vector<SweepResult> results;
    for (const std::int64_t number : settings) results.push_back(result({.rung = rung, .setting = number}).value());
    std::vector<std::int64_t> better = better_half(settings, results);
    if (better.empty()) {
      throw io::FileError(
          fmt::format("none of the {} has a validation metric to choose by: --halving needs data with a "
                      "part for validation, and trainings that do not fail",
                      counted(static_cast<std::int64_t>(settings.size()), "training")));
    }
    return better;
  }

  int tell() {
    std::vector<RunHistory> runs;
    std::int64_t failed = 0;
    for (std::int64_t number = 1; number <= count(); ++number) {
      const fs::path run = options_.run / std::to_string(number);
      for (std::int64_t rung = 0; rung < rungs_; ++rung) {
        const std::optional<SweepResult> its = result({.rung = rung, .setting = number});
        if (!its || its->exit_code == kExitDone || its->exit_code == kExitStoppedEarly) continue;
        ++failed;
        console_.warn(
            fmt::format("setting {} ({}) failed with exit code {}: {} tells why; without {} it is tried again", number,
                        its->line, its->exit_code, folder_.words_of(number).string(),
                        folder_.result_file({.rung = rung, .setting = number}).string()));
      }
      if (fs::exists(run / "metrics.jsonl")) runs.push_back(read_run(run, run.string()));
    }
    if (!runs.empty()) {
      console_.info("\n" + format_ranking(runs));
      for (const RunGroup& group : groups_of(runs)) {
        const std::size_t best = ranking_of(group.runs)[0];
        const RunHistory& run = group.runs[best];
        const RunSummary summary = summary_of(run);
        if (!summary.best) continue;
        const std::string options = different_options(differences_of(group.runs), best);
        console_.info(fmt::format("the best: {}{} ({} {}); `lockstep report {}` draws them all",
                                  io::visible_line(run.name), options.empty() ? "" : ", " + options,
                                  metric_words(run.metric), format_metric(run.metric, *summary.best),
                                  io::shell_path(options_.run)));
      }
    }
    console_.mention_lost_output();
    return failed > 0 ? kExitFailed : kExitDone;
  }

  const SweepOptions& options_;
  StopSignals& signals_;
  Console console_{true};
  SweepFolder folder_;
  std::int64_t rungs_;
};

}  // namespace

int run_sweep(const SweepOptions& options, StopSignals& signals) {
  signals.note();
  if (options.halving) require_one_metric(options);
  return Sweep(options, signals).run();
}

std::int64_t rungs_of(std::int64_t settings) {
  std::int64_t rungs = 1;
  for (; settings > 1; settings = (settings + 1) / 2) ++rungs;
  return rungs;
}

double share_of_steps(std::int64_t rung, std::int64_t rungs) {
  double share = 1;
  for (; rung + 1 < rungs; ++rung) share /= 2;
  return share;
}

std::vector<std::int64_t> better_half(const std::vector<std::int64_t>& settings,
                                      const std::vector<SweepResult>& results) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < settings.size(); ++i) {
    if (!results[i].metric) continue;
    if (const std::size_t first = order.empty() ? i : order[0]; results[i].metric_key != results[first].metric_key) {
      throw io::FileError(
          two_metrics({settings[first], results[first].metric_key}, {settings[i], results[i].metric_key}) +
          ", and another --run");
    }
    order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return is_better_metric(results[a].metric_key, *results[a].metric, *results[b].metric);
  });
  order.resize(std::min(order.size(), (settings.size() + 1) / 2));
  std::vector<std::int64_t> better;
  for (const std::size_t i : order) better.push_back(settings[i]);
  std::sort(better.begin(), better.end());
  return better;
}

}  // namespace lockstep::app
