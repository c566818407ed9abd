#include "io/runs/run_folder.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/checkpoints/checkpoint.hpp"
#include "io/checkpoints/checkpoint_parts.hpp"
#include "io/files/durable_file.hpp"
#include "io/runs/process_identity.hpp"

namespace lockstep::io {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 4> kRunFiles = {"config.ini", "log.txt", "metrics.jsonl", "owner"};
constexpr std::array<std::string_view, 2> kAppended = {"log.txt", "metrics.jsonl"};
constexpr std::array<std::string_view, 2> kPrefixes = {"events.out.tfevents.", "arrivals-"};
constexpr std::array<std::string_view, 2> kLinks = {"latest", "best"};

bool made_by_run(std::string_view name) {
  return std::ranges::any_of(kPrefixes, [&](std::string_view prefix) { return name.starts_with(prefix); }) ||
         std::ranges::any_of(kRunFiles,
                             [&](std::string_view own) { return name == own || is_temporary_of(name, own); });
}

/// Files of a run, including temporaries, and the folders of its checkpoints' parts. No other folders.
std::vector<fs::path> files_of_run(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (!fs::is_directory(entry->symlink_status()) && made_by_run(entry->path().filename().string())) {
      files.push_back(entry->path());
    }
  }
  if (error) throw FileError(fmt::format("cannot list {}: {}", folder.string(), error.message()));
  const fs::path checkpoints = folder / "checkpoints";
  if (!fs::is_directory(checkpoints, error)) return files;
  for (const FoundCheckpoint& found : list_checkpoints(checkpoints)) files.push_back(found.file);
  for (fs::path& parts : part_folders(checkpoints)) files.push_back(std::move(parts));
  for (const std::string_view link : kLinks) {
    if (fs::is_symlink(fs::symlink_status(checkpoints / link))) files.push_back(checkpoints / link);
  }
  return files;
}

/// Temporaries alone are not a run: a process that died while it started leaves them.
bool holds_run(const fs::path& folder) {
  const std::vector<fs::path> files = files_of_run(folder);
  return std::any_of(files.begin(), files.end(),
                     [](const fs::path& file) { return !file.filename().string().starts_with('.'); });
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error || !fs::is_directory(folder)) {
    throw FileError(fmt::format("cannot create the folder {}: {}; choose another with --run", folder.string(),
                                error ? error.message() : "something else has this name"));
  }
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    throw FileError(fmt::format("the folder {} is not writable: {}; choose another with --run", folder.string(),
                                std::generic_category().message(errno)));
  }
}

/// Throws FileError if the file cannot be replaced because its folder is sticky or because of its attributes.
void require_replaceable(const fs::path& file) {
  const auto refuse = [&](std::string_view why) {
    throw FileError(fmt::format("cannot replace {}: {}", file.string(), why));
  };
  struct stat status {
  }, folder{};
  if (::lstat(file.c_str(), &status) != 0 || ::stat(file.parent_path().c_str(), &folder) != 0) return;
  const uid_t self = ::geteuid();
  const bool others = status.st_uid != self && folder.st_uid != self && self != 0;
  if ((folder.st_mode & S_ISVTX) != 0 && others) {
    refuse("it belongs to another user, and so does its folder, which is sticky (chmod -t)");
  }
  struct statx attributes {};
  if (::statx(AT_FDCWD, file.c_str(), AT_SYMLINK_NOFOLLOW, STATX_TYPE, &attributes) != 0) return;
  const auto set = attributes.stx_attributes;
  if ((set & STATX_ATTR_IMMUTABLE) != 0) refuse("it may not be changed (chattr -i)");
  if ((set & STATX_ATTR_APPEND) != 0) refuse("it may grow and nothing else (chattr -a)");
}

[[noreturn]] void refuse(const fs::path& folder) {
  throw FileError(
      fmt::format("{} holds a run already: --resume continues it, --force starts it over (its checkpoints "
                  "and logs are removed), --run FOLDER uses another folder",
                  folder.string()));
}

}  // namespace

std::string owner_of(const std::filesystem::path& folder) {
  const std::optional<std::string> text = read_whole(folder / "owner");
  if (!text || text->empty()) return "";
  const ProcessIdentity owner = process_identity_from(*text);
  std::string words = fmt::format("host {}, pid {}", owner.host, owner.pid);
  if (owner.pid_namespace != 0 && owner.pid_namespace != this_process().pid_namespace) words += " in its container";
  const std::size_t since = text->find("since ");
  if (since != std::string::npos) words += ", " + text->substr(since, text->find('\n', since) - since);
  return words;
}

void require_writable_run(const std::filesystem::path& folder) {
  for (const fs::path& file : files_of_run(folder)) require_replaceable(file);
  for (const std::string_view name : kAppended) {
    const fs::path file = folder / name;
    if (std::error_code none; fs::symlink_status(file, none).type() == fs::file_type::not_found) continue;
    open_own_file(file, O_WRONLY | O_APPEND, "write");
  }
  for (const std::string_view name : kRunFiles) {
    if (std::error_code none; fs::is_directory(fs::symlink_status(folder / name, none))) {
      throw FileError(fmt::format("cannot write {}: a folder has its name", (folder / name).string()));
    }
  }
}

RunFolder::RunFolder(std::filesystem::path folder, Open open, bool overwrite, IoDeadline* deadline)
    : folder_(std::move(folder)), deadline_(deadline) {
  const IoDeadline::Operation taking(deadline_, IoDeadline::Kind::writing, folder_);
  if (folder_.empty()) throw std::invalid_argument("a run needs a folder");
  make_folder(folder_);
  if (std::error_code none; fs::is_symlink(fs::symlink_status(checkpoints(), none))) {
    throw FileError(
        fmt::format("{} is a link: checkpoints of another run could be removed through it; make it a "
                    "folder, or let the run's own folder be the link",
                    checkpoints().string()));
  }
  const bool fresh = open == Open::fresh;
  if (fresh && !overwrite && holds_run(folder_)) refuse(folder_);
  make_folder(checkpoints());
  if (!fresh) require_writable_run(folder_);
  if (fresh && overwrite) {
    for (const fs::path& file : files_of_run(folder_)) require_replaceable(file);
  }

  token_ = fmt::format("{}since {:%Y-%m-%dT%H:%M:%SZ}\n", to_text(this_process()), fmt::gmtime(std::time(nullptr)));
  if (fresh && !overwrite) {
    if (!create_file_once(folder_ / "owner", token_)) refuse(folder_);
  } else {
    take_over();
  }
  remove_temporaries();
  if (fresh && overwrite) start_over();
}

/// Takes ownership before anything is removed, so that a living previous owner notices first.
void RunFolder::take_over() const {
  constexpr int kAttempts = 100;
  for (int attempt = 1;; ++attempt) {
    try {
      return replace_file(folder_ / "owner", token_);
    } catch (const FileError&) {  // another process that takes over at the same moment also removes our temporary
      if (attempt == kAttempts) throw;
    }
  }
}

void RunFolder::remove_temporaries() const {
  for (const fs::path& file : files_of_run(folder_)) {
    const std::string name = file.filename().string();
    std::error_code gone_or_kept;  // a failure does no harm
    if (name.starts_with('.') && name.ends_with(".tmp")) fs::remove(file, gone_or_kept);
  }
}

void RunFolder::start_over() const {
  still_owner();
  for (const fs::path& file : files_of_run(folder_)) {
    if (file == folder_ / "owner") continue;
    std::error_code error;
    if (fs::is_directory(fs::symlink_status(file, error))) {
      remove_part_folder(file);
      continue;
    }
    fs::remove(file, error);
    if (error) throw FileError(fmt::format("cannot remove {}: {}", file.string(), error.message()));
  }
}

void RunFolder::still_owner() const {
  const fs::path file = folder_ / "owner";
  const IoDeadline::Operation reading(deadline_, IoDeadline::Kind::writing, file);
  const std::optional<std::string> owner = read_whole(file);
  if (owner == token_) return;
  if (!owner) {
    throw FileError(
        fmt::format("{} is gone: somebody removed the run's folder or its owner file; this process writes "
                    "nothing more there",
                    file.string()));
  }
  throw FileError(fmt::format("{} belongs to another process now ({}); this one (pid {}) writes nothing more there",
                              folder_.string(), owner_of(folder_), ::getpid()));
}

bool RunFolder::take_request(std::string_view name) const noexcept {
  try {
    const fs::path file = folder_ / name;
    const IoDeadline::Operation looking(deadline_, IoDeadline::Kind::writing, file);
    return ::unlink(file.c_str()) == 0;
  } catch (const std::exception&) {
    return false;
  }
}

void RunFolder::write_text(std::string_view name, std::string_view text) const {
  if (name.empty() || name.find('/') != std::string_view::npos || name == "." || name == ".." || name == "owner") {
    throw std::invalid_argument(fmt::format("'{}' is not the name of a text file in a run folder", name));
  }
  still_owner();
  const fs::path file = folder_ / name;
  const IoDeadline::Operation writing(deadline_, IoDeadline::Kind::writing, file);
  try {
    replace_file(file, text);
  } catch (const FileError&) {
    still_owner();  // if another process has taken over and cleaned up, its error explains more
    throw;
  }
}

}  // namespace lockstep::io
