#include "app/runs/sweep_folder.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <sstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/runs/run_history.hpp"
#include "io/files/durable_file.hpp"
#include "io/runs/metrics_log.hpp"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

/// Seconds since 1970 by the clock of its file system; 0: there is no such file.
double changed_at(const fs::path& file) {
  struct stat status {};
  if (stat(file.c_str(), &status) != 0) return 0;
  return static_cast<double>(status.st_mtim.tv_sec) + 1e-9 * static_cast<double>(status.st_mtim.tv_nsec);
}

/// Creates a new file. Returns false if it exists already.
bool make_file(const fs::path& file, const std::string& text) {
  const int descriptor = open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    if (errno == EEXIST) return false;
    throw io::FileError(fmt::format("cannot write {}: {}", file.string(), std::strerror(errno)));
  }
  const io::Descriptor owner(descriptor);
  io::write_all(owner, text, file);
  return true;
}

}  // namespace

SweepFolder::SweepFolder(const fs::path& folder)
    : folder_(folder / "sweep"), who_(fmt::format("{} {}", host_name(), getpid())) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw io::FileError(fmt::format("cannot make the folder {}: {}", folder_.string(), error.message()));
}

SweepFolder::~SweepFolder() {
  try {
    release();
  } catch (const std::exception&) {  // the silence tells other processes
  }
}

fs::path SweepFolder::result_file(const SweepTask& task) const {
  return folder_ / fmt::format("rung-{}-setting-{}.json", task.rung + 1, task.setting);
}

fs::path SweepFolder::claim_file(const SweepTask& task) const {
  return folder_ / fmt::format("rung-{}-setting-{}.claim", task.rung + 1, task.setting);
}

fs::path SweepFolder::words_of(std::int64_t setting) const { return folder_ / fmt::format("setting-{}.txt", setting); }

std::optional<SweepResult> SweepFolder::result(const SweepTask& task) const {
  const std::vector<io::MetricRecord> records = io::all_records(result_file(task));
  if (records.empty()) return std::nullopt;
  return SweepResult{.line = string_of(records[0], "line"),
                     .metric_key = string_of(records[0], "metric_key"),
                     .metric = number_of(records[0], "metric"),
                     .exit_code = static_cast<std::int64_t>(number_of(records[0], "exit_code").value_or(0))};
}

void SweepFolder::record(const SweepTask& task, const SweepResult& result) const {
  io::MetricRecord record{{"kind", "setting"},     {"setting", task.setting},
                          {"rung", task.rung + 1}, {"exit_code", result.exit_code},
                          {"line", result.line},   {"metric_key", result.metric_key}};
  if (result.metric) record.emplace_back("metric", *result.metric);
  io::replace_file(result_file(task), io::to_json_line(record) + "\n");
}

bool SweepFolder::claim(const SweepTask& task) {
  const fs::path file = claim_file(task);
  if (!make_file(file, who_) && !(take_from_dead(file) && make_file(file, who_))) return false;
  mine_ = file;
  return true;
}

/// Returns true if the claim belonged to a dead process, and has been removed.
bool SweepFolder::take_from_dead(const fs::path& claim) const {
  const std::string holder = io::read_whole(claim).value_or("");
  std::istringstream words(holder);
  std::string host;
  pid_t process = 0;
  words >> host >> process;
  bool gone = false;
  if (host == host_name() && process > 0) {
    gone = kill(process, 0) != 0 && errno == ESRCH;
  } else {
    const fs::path clock = folder_ / ("." + who_);
    io::replace_file(clock, who_);
    gone = changed_at(clock) - changed_at(claim) > kSilence;
    fs::remove(clock);
  }
  if (!gone) return false;
  // Only one of several processes that see a dead claim moves it. The moved file may be a newer claim: that one goes
  // back, unless yet another one has replaced it.
  const fs::path moved = folder_ / ("." + who_ + " took");
  if (rename(claim.c_str(), moved.c_str()) != 0) return false;
  const bool is_it = io::read_whole(moved).value_or("") == holder;
  if (!is_it && link(moved.c_str(), claim.c_str()) != 0 && errno != EEXIST) {  // no hard links on this file system
    make_file(claim, io::read_whole(moved).value_or(""));
  }
  fs::remove(moved);
  return is_it;
}

void SweepFolder::release() {
  if (mine_.empty()) return;
  std::error_code ignored;
  if (io::read_whole(mine_).value_or("") == who_) fs::remove(mine_, ignored);
  mine_.clear();
}

void SweepFolder::still_here() {
  if (!mine_.empty()) utimensat(AT_FDCWD, mine_.c_str(), nullptr, 0);
}

}  // namespace lockstep::app
