#include "app/train/wall_time.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app/options/time_limit.hpp"
#include "app/report/figures.hpp"

namespace lockstep::app {

namespace {

/// Seconds for the end of the program after the checkpoint: last lines, MPI_Finalize and the end of the launcher.
constexpr double kMargin = 5;
/// Longest time to wait for squeue. It usually answers in milliseconds; a controller that is busy or restarts must not
/// delay the start of a job.
constexpr std::chrono::milliseconds kAnswerLimit{5000};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string seconds_text(double seconds) { return fmt::format("{:.{}f} s", seconds, seconds < 10 ? 1 : 0); }

/// Runs a program and returns the first line that it prints. Returns nullopt if the program is not installed, fails, or
/// does not end in time; it is then killed. Uses posix_spawn because fork would run the handlers that network libraries
/// install for it. Adds `setting` (NAME=VALUE) to the program's environment.
std::optional<std::string> first_line_of(std::vector<std::string> command, std::string setting) {
  std::array<int, 2> pipe_ends{};
  if (pipe2(pipe_ends.data(), O_CLOEXEC) != 0) return std::nullopt;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::vector<char*> environment{setting.data()};
  for (char** entry = environ; *entry; ++entry) {
    if (!std::string_view(*entry).starts_with(setting.substr(0, setting.find('=') + 1))) environment.push_back(*entry);
  }
  environment.push_back(nullptr);
  pid_t child = 0;
  const int error = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_ends[1]);
  std::string text;
  bool ended = false;
  const auto limit = std::chrono::steady_clock::now() + kAnswerLimit;
  while (error == 0 && !ended) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(limit - std::chrono::steady_clock::now());
    pollfd readable{.fd = pipe_ends[0], .events = POLLIN, .revents = 0};
    const int ready = left.count() > 0 ? poll(&readable, 1, static_cast<int>(left.count())) : 0;
    if (ready == 0) break;
    if (ready < 0) continue;  // interrupted by a signal, whose handler has recorded it
    std::array<char, 512> buffer;
    const ssize_t count = read(pipe_ends[0], buffer.data(), buffer.size());
    if (count > 0) text.append(buffer.data(), static_cast<std::size_t>(count));
    ended = count == 0;
  }
  close(pipe_ends[0]);
  if (error != 0) return std::nullopt;
  if (!ended) kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  if (!ended || !WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  return text.substr(0, text.find('\n'));
}

const char* variable(const char* name) {
  const char* const value = std::getenv(name);
  return value && *value ? value : nullptr;
}

/// Converts seconds since 1970, as text, to seconds from now.
std::optional<double> seconds_until(std::string_view epoch) {
  const auto end = parse_digits(epoch);
  if (!end) return std::nullopt;
  return static_cast<double>(*end) - static_cast<double>(std::time(nullptr));
}

/// Returns this job's ID for squeue and scontrol; "" outside Slurm. The ID of a task of a job array is ARRAY_TASK,
/// because SLURM_JOB_ID of the last task means all tasks of the array to both commands.
std::string slurm_job() {
  const char* const job = variable("SLURM_JOB_ID");
  const char* const array = variable("SLURM_ARRAY_JOB_ID");
  const char* const task = variable("SLURM_ARRAY_TASK_ID");
  if (job && array && task) return fmt::format("{}_{}", array, task);
  return job ? job : "";
}

JobTime ask_slurm() {
  const std::string job = slurm_job();
  if (const char* const end = variable("SLURM_JOB_END_TIME")) {
    const auto left = seconds_until(end);
    if (left && *left > 0) return {.left = left, .source = "SLURM_JOB_END_TIME", .problem = ""};
    return {.left = {},
            .source = "",
            .problem = fmt::format("SLURM_JOB_END_TIME={} is {}: it is ignored, and this job does not stop by itself "
                                   "before its time is up; --time-limit says how long it may run",
                                   end, left ? "in the past" : "not a number of seconds since 1970")};
  }
  if (job.empty()) return {};
  const auto answer =
      first_line_of({"squeue", "--noheader", fmt::format("--jobs={}", job), "--format=%e"}, "SLURM_TIME_FORMAT=%s");
  const auto left = answer ? seconds_until(*answer) : std::nullopt;
  if (left && *left > 0) return {.left = left, .source = "squeue", .problem = ""};
  if (answer && (*answer == "NONE" || *answer == "N/A" || *answer == "Unknown")) return {};  // a job without a limit
  return {
      .left = {},
      .source = "",
      .problem = fmt::format("this is Slurm job {}, but squeue {}: it does not stop by itself before its time is up; "
                             "--time-limit says how long it may run",
                             job, answer ? "knows no end of that job" : "gives no answer here")};
}

}  // namespace

bool is_last_step(double left, const Durations& longest, const Ahead& ahead) {
  const double follows = (ahead.validation ? longest.validation : 0) + (ahead.checkpoint ? longest.checkpoint : 0);
  return left < 2 * longest.step + follows + 2 * longest.checkpoint + kMargin;
}

double checkpoint_estimate(std::uint64_t bytes) {
  constexpr double kBytesPerSecond = 100e6, kAtLeast = 1;
  return kAtLeast + static_cast<double>(bytes) / kBytesPerSecond;
}

JobTime find_job_time(const TimeLimit& limit) {
  switch (limit.kind) {
    case TimeLimit::Kind::none:
      return {};
    case TimeLimit::Kind::scheduler:
      return ask_slurm();
    case TimeLimit::Kind::given:
      break;
  }
  return {.left = limit.seconds, .source = "--time-limit", .problem = ""};
}

std::string describe_job(const JobTime& time) {
  const std::string job = slurm_job();
  const char* const restarts = variable("SLURM_RESTART_COUNT");
  std::string line = !job.empty() ? fmt::format("Slurm job {}", job) : time.left ? "this run" : "";
  if (!job.empty() && restarts) line += fmt::format(", restart {}", restarts);
  if (time.left)
    line += fmt::format("{} may take {} ({})", job.empty() ? "" : ": it", format_duration(*time.left), time.source);
  return line;
}

WallTime::WallTime(double seconds_left, double checkpoint, double validation_steps)
    : end_(now() + seconds_left), first_checkpoint_(checkpoint), validation_steps_(validation_steps) {}

double WallTime::left() const { return *end_ - now(); }

Durations WallTime::expected() const {
  return {.step = longest_.step,
          .validation = longest_.validation > 0 ? longest_.validation : validation_steps_ * longest_.step,
          .checkpoint = longest_.checkpoint > 0 ? longest_.checkpoint : first_checkpoint_};
}

void WallTime::took_step(double seconds) { longest_.step = std::max(longest_.step, seconds); }
void WallTime::took_validation(double seconds) { longest_.validation = std::max(longest_.validation, seconds); }
void WallTime::took_checkpoint(double seconds) { longest_.checkpoint = std::max(longest_.checkpoint, seconds); }

bool WallTime::is_up(const Ahead& ahead) {
  if (!end_) return false;
  if (!reason_.empty()) return true;
  const double seconds = left();
  if (!is_last_step(seconds, expected(), ahead)) return false;
  reason_ = fmt::format("{} of the job's time were left, a checkpoint {} {}", seconds_text(std::max(0.0, seconds)),
                        longest_.checkpoint > 0 ? "takes" : "may take", seconds_text(expected().checkpoint));
  return true;
}

}  // namespace lockstep::app
