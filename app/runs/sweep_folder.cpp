#include "app/runs/sweep_folder.hpp"

#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/runs/run_history.hpp"
#include "io/files/durable_file.hpp"
#include "io/runs/metrics_log.hpp"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;

/// Replaces the holder in a released claim.
constexpr std::string_view kReleased = "released";
/// The last line of a claim if its holder could lock the file.
constexpr std::string_view kLocked = "locked\n";

double seconds_of(const timespec& time) {
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

bool is_there(const fs::path& file) {
  struct stat status {};
  return lstat(file.c_str(), &status) == 0;
}

/// True if nobody holds the lock. False if locks do not work.
bool lock_is_free(const fs::path& claim) {
  const io::Descriptor file(open(claim.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return file.get() >= 0 && flock(file.get(), LOCK_SH | LOCK_NB) == 0;
}

}  // namespace

SweepFolder::SweepFolder(const fs::path& folder) : folder_(folder / "sweep"), own_(io::this_process()) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw io::FileError(fmt::format("cannot make the folder {}: {}", folder_.string(), error.message()));
}

SweepFolder::~SweepFolder() {
  try {
    release();
  } catch (const std::exception&) {  // other processes notice the missing heartbeat
  }
}

fs::path SweepFolder::result_file(const SweepTask& task) const {
  return folder_ / fmt::format("rung-{}-setting-{}.json", task.rung + 1, task.setting);
}

fs::path SweepFolder::claim_file(const SweepTask& task, std::int64_t number) const {
  const std::string first = fmt::format("rung-{}-setting-{}.claim", task.rung + 1, task.setting);
  return folder_ / (number == 1 ? first : fmt::format("{}.{}", first, number));
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
  std::int64_t number = 0;
  while (is_there(claim_file(task, number + 1))) ++number;
  if (number > 0 && !is_over(claim_file(task, number))) return false;
  return create(task, number + 1);
}

/// Returns false if another process was faster.
bool SweepFolder::create(const SweepTask& task, std::int64_t number) {
  const fs::path path = claim_file(task, number);
  io::Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.get() < 0) {
    if (errno == EEXIST) return false;
    throw io::FileError(fmt::format("cannot write {}: {}", path.string(), std::strerror(errno)));
  }
  const bool locked = flock(file.get(), LOCK_EX | LOCK_NB) == 0;
  io::write_all(file, io::to_text(own_) + (locked ? std::string(kLocked) : ""), path);
  held_ = Held{.task = task, .number = number, .file = std::move(file)};
  return true;
}

/// True if the holder has released the claim, has ended, or has sent no heartbeat for too long.
bool SweepFolder::is_over(const fs::path& claim) const {
  const std::string text = io::read_whole(claim).value_or("");
  if (text.starts_with(kReleased)) return true;
  const io::ProcessIdentity holder = io::process_identity_from(text);
  const io::Presence presence = io::presence_of(holder);
  if (presence == io::Presence::gone) return true;
  struct stat status {};
  if (stat(claim.c_str(), &status) != 0) return false;  // removed, because its task is done
  const double silence = now() - seconds_of(status.st_mtim);
  if (silence > kSilence) return true;
  return presence == io::Presence::unseen && silence > kShortSilence && io::on_one_kernel(holder, own_) &&
         text.ends_with(kLocked) && lock_is_free(claim);
}

/// Seconds by the clock of the folder's file system, which may be another host's.
double SweepFolder::now() const {
  if (clock_.get() < 0) {
    const fs::path path = folder_ / fmt::format(".clock-{}", own_.token);
    clock_ = io::open_file(path, O_WRONLY | O_CREAT | O_EXCL, "create");
    unlink(path.c_str());
  }
  struct stat status {};
  if (futimens(clock_.get(), nullptr) != 0 || fstat(clock_.get(), &status) != 0) {
    throw io::FileError(fmt::format("cannot tell the time in {}: {}", folder_.string(), std::strerror(errno)));
  }
  return seconds_of(status.st_mtim);
}

bool SweepFolder::holds() const {
  if (!held_) return false;
  struct stat held {
  }, there{};
  return fstat(held_->file.get(), &held) == 0 && stat(claim_file(held_->task, held_->number).c_str(), &there) == 0 &&
         held.st_dev == there.st_dev && held.st_ino == there.st_ino &&
         !is_there(claim_file(held_->task, held_->number + 1));
}

void SweepFolder::release() {
  if (!held_) return;
  const Held held = std::move(*std::exchange(held_, std::nullopt));
  io::write_at(held.file, std::as_bytes(std::span(kReleased)), 0, claim_file(held.task, held.number));
  if (!result(held.task)) return;
  // The task has a result, so its claims are not needed any more.
  std::error_code ignored;
  for (std::int64_t number = held.number; number > 0; --number) fs::remove(claim_file(held.task, number), ignored);
}

void SweepFolder::still_here() {
  if (held_) futimens(held_->file.get(), nullptr);
}

}  // namespace lockstep::app
