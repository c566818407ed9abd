#include "io/foreign_files.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <new>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/checkpoints/checkpoint.hpp"
#include "io/datasets/hdf5_listing.hpp"
#include "io/datasets/shard_set.hpp"
#include "io/files/durable_file.hpp"
#include "io/files/unknown_name.hpp"
#include "io/shards/shard_file.hpp"

namespace lockstep::io {
namespace {

constexpr std::size_t kMinSampled = std::size_t{16} << 20;
constexpr std::int64_t kPlaces = 16;
constexpr std::size_t kInspectedAtOnce = std::size_t{1} << 20;

// First letters of the child's lines: the next file, a sign of life, the reason of a refusal.
constexpr char kFileLine = 'F';
constexpr char kAliveLine = '+';
constexpr char kErrorLine = 'E';
constexpr std::string_view kUnlabelledToo = "unlabelled-too";
constexpr std::string_view kUnwrittenToo = "unwritten-too", kMissingToo = "missing-too";
// Exit codes of the child. Any other code, such as a sanitizer's, is a crash.
constexpr int kSound = 0;
constexpr int kRefused = 3;
constexpr int kUnknownName = 4;

using InspectionProgress = std::function<void(std::string_view)>;

/// Refuses unwritten parts: the library silently reads fill values there.
void require_written(const ShardFile& file, const Gaps& gaps, const InspectionProgress& progress) {
  const Hdf5File opened(file.path(), Hdf5File::Access::read);
  for (const StoredField& stored : file.fields()) {
    const std::string missing = opened.unwritten(stored.dataset, [&] { progress(""); });
    if (missing.empty() || gaps.accept_unwritten) continue;
    throw FileError({.file = file.path(),
                     .what = fmt::format("not all of {} was written: {}. Write the rest, or give --allow-fill if the "
                                         "fill value stands for data",
                                         stored.dataset, missing)});
  }
}

/// Reads now what may fail later: data without an offset, and numbers that can be missing. Data with an offset are read
/// without the library.
void read_some(const ShardFile& file, std::size_t field, std::size_t most, const InspectionProgress& progress) {
  const StoredField& stored = file.fields()[field];
  if (stored.offset && !stored.meaning.can_be_missing()) return;
  const auto rows =
      std::max<std::int64_t>(stored.chunk_rows(), static_cast<std::int64_t>(kInspectedAtOnce / stored.field.bytes()));
  std::vector<std::byte> buffer;
  std::size_t done = 0;
  for (std::int64_t first = 0; first < stored.count && done < most; first += rows) {
    const std::int64_t count = std::min(rows, stored.count - first);
    buffer.resize(stored.field.bytes() * static_cast<std::size_t>(count));
    file.read_rows(field, first, count, buffer);
    done += buffer.size();
    progress("");
  }
  if (stored.chunk.empty() || done == 0) return;
  const auto read = static_cast<std::int64_t>(done / stored.field.bytes());
  buffer.resize(stored.field.bytes());
  for (std::int64_t place = 1; place <= kPlaces && read < stored.count; ++place) {
    file.read_rows(field, read + (stored.count - 1 - read) * place / kPlaces, 1, buffer);
    progress("");
  }
}

/// Limits memory relative to the address space mapped so far, because libraries reserve gigabytes. Has no effect under
/// sanitizers, which reserve everything.
void limit_memory(std::uint64_t bytes) {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const std::uint64_t mapped = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  constexpr std::uint64_t kSanitizers = std::uint64_t{1} << 40;
  if (mapped == 0 || mapped > kSanitizers) return;
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, mapped + bytes);
  ::setrlimit(RLIMIT_AS, &limit);
}

/// The child ends with its parent. It writes no core file: its crash is expected.
void end_with_parent() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE}) std::signal(signal, SIG_IGN);
  const rlimit no_core{.rlim_cur = 0, .rlim_max = 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
}

void report_line(char kind, std::string_view text) {
  std::string line(text);
  std::replace(line.begin(), line.end(), '\n', '\v');  // one line for any file name
  write_all(Descriptor(::dup(STDOUT_FILENO)), fmt::format("{}{}\n", kind, line), "standard output");
}

/// The launcher's variables would make an MPI library in the child a rank of the parent's job.
bool is_of_launcher(std::string_view variable) {
  constexpr std::array<std::string_view, 5> kPrefixes = {"OMPI_", "PMIX_", "PMI_", "PRTE_", "MPI_"};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return variable.starts_with(prefix); });
}

std::vector<std::string> environment_of_child() {
  std::vector<std::string> variables{"OPENBLAS_NUM_THREADS=1", "OMP_NUM_THREADS=1"};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    const bool threads = text.starts_with("OPENBLAS_NUM_THREADS=") || text.starts_with("OMP_NUM_THREADS=");
    if (!threads && !is_of_launcher(text)) variables.emplace_back(text);
  }
  return variables;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

class SpawnActions {
 public:
  SpawnActions() {
    posix_spawn_file_actions_init(&files_);
    posix_spawnattr_init(&attributes_);
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  }
  ~SpawnActions() {
    posix_spawn_file_actions_destroy(&files_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;

  /// Redirects the child's standard output and hides its standard error: messages of its C library are not for users.
  void write_to(int descriptor) {
    posix_spawn_file_actions_addopen(&files_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files_, descriptor, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&files_, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  }
  const posix_spawn_file_actions_t* files() const noexcept { return &files_; }
  const posix_spawnattr_t* attributes() const noexcept { return &attributes_; }

 private:
  posix_spawn_file_actions_t files_;
  posix_spawnattr_t attributes_;
};

/// A child process and its output, line by line.
class InspectingChild {
 public:
  /// `started()` is false if the system cannot start a process.
  explicit InspectingChild(std::vector<std::string> words) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
    reading_ = Descriptor(ends[0]);
    const Descriptor writing(ends[1]);
    SpawnActions actions;
    actions.write_to(writing.get());
    std::vector<std::string> variables = environment_of_child();
    const std::string program = words[0];
    if (::posix_spawn(&pid_, program.c_str(), actions.files(), actions.attributes(), pointers_to(words).data(),
                      pointers_to(variables).data()) != 0) {
      pid_ = -1;
    }
  }
  ~InspectingChild() { end(); }
  InspectingChild(const InspectingChild&) = delete;
  InspectingChild& operator=(const InspectingChild&) = delete;

  bool started() const noexcept { return pid_ > 0; }
  /// The next line; nullopt at the end of the output. Throws std::system_error (timed_out) after `silence_seconds` of
  /// silence.
  std::optional<std::string> line(double silence_seconds) {
    while (true) {
      if (const std::size_t end = said_.find('\n'); end != std::string::npos) {
        std::string text = said_.substr(0, end);
        said_.erase(0, end + 1);
        return text;
      }
      pollfd wanted{.fd = reading_.get(), .events = POLLIN, .revents = 0};
      const int ready = ::poll(&wanted, 1, static_cast<int>(silence_seconds * 1000));
      if (ready < 0 && errno == EINTR) continue;
      if (ready == 0) throw std::system_error(std::make_error_code(std::errc::timed_out));
      std::array<char, 4096> buffer;
      const ssize_t got = ::read(reading_.get(), buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return std::nullopt;
      said_.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }
  /// The exit status, as from waitpid, after the end of the output.
  int wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status;
  }

 private:
  /// Kills the child and waits for at most 1 s. A child that hangs in a file system does not die at once; it stays
  /// until we end.
  void end() noexcept {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    for (int i = 0; i < 100 && ::waitpid(pid_, nullptr, WNOHANG) == 0; ++i) ::usleep(10'000);
  }

  pid_t pid_ = -1;
  Descriptor reading_;
  std::string said_;
};

std::string death_in_words(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("ended with {}", WEXITSTATUS(status));
  const char* name = ::strsignal(WTERMSIG(status));
  return fmt::format("died of signal {} ({})", WTERMSIG(status), name != nullptr ? name : "unknown");
}

[[noreturn]] void refuse_as_damaged(const std::filesystem::path& file, std::string_view what) {
  throw FileError({.file = file,
                   .what = fmt::format("is damaged: reading it, the HDF5 library {}; copy it again, or make it again "
                                       "from its source",
                                       what)});
}

void await_verdict(InspectingChild& child, const ForeignFiles& files, const InspectionLimits& limits) {
  std::filesystem::path file = files.path;
  std::optional<std::string> error;
  try {
    while (const auto line = child.line(limits.silence_seconds)) {
      std::string text = line->substr(std::min<std::size_t>(1, line->size()));
      std::replace(text.begin(), text.end(), '\v', '\n');
      if (line->starts_with(kFileLine)) file = text;
      if (line->starts_with(kErrorLine)) error = text;
    }
  } catch (const std::system_error&) {
    throw FileError({.file = file,
                     .what = fmt::format("the HDF5 library makes no progress with it ({:g} s): it is damaged, or its "
                                         "file system does not answer; copy it again, or to another file system",
                                         limits.silence_seconds)});
  }
  const int status = child.wait();
  if (WIFEXITED(status) && WEXITSTATUS(status) == kSound) return;
  if (error && WIFEXITED(status) && WEXITSTATUS(status) == kRefused) throw FileError(*error);
  if (error && WIFEXITED(status) && WEXITSTATUS(status) == kUnknownName) throw UnknownName(*error);
  refuse_as_damaged(file, death_in_words(status));
}

}  // namespace

void inspect(const ForeignFiles& files, const InspectionProgress& progress) {
  std::set<std::filesystem::path> parts;  // files that other files of the folder take data from
  std::vector<std::pair<std::filesystem::path, std::exception_ptr>> refused;
  for (const std::filesystem::path& path : list_hdf5_files(files.path).files) {
    progress(path.string());
    if (is_checkpoint(path)) continue;
    try {
      const ShardFile file(path, files.x, files.y, nullptr, files.unlabelled, files.gaps);
      for (const std::filesystem::path& other : file.other_files()) parts.insert(same_path(other));
      require_written(file, files.gaps, progress);
      for (std::size_t i = 0; i < file.inputs(); ++i) read_some(file, file.input(i), kMinSampled, progress);
      for (std::size_t i = 0; i < file.targets(); ++i) {
        read_some(file, file.target(i), std::numeric_limits<std::size_t>::max(), progress);
      }
    } catch (const FileError&) {
      refused.emplace_back(path, std::current_exception());
    }
  }
  for (const auto& [path, error] : refused) {
    if (!parts.contains(same_path(path))) std::rethrow_exception(error);
  }
}

int answer_inspection(std::span<const char* const> words) {
  if (words.size() != 7) return 2;
  end_with_parent();
  limit_memory(std::strtoull(words[6], nullptr, 10));
  std::string file(words[0]);
  try {
    const Unlabelled unlabelled =
        std::string_view(words[3]) == kUnlabelledToo ? Unlabelled::accepted : Unlabelled::refused;
    const Gaps gaps{.accept_unwritten = words[4] == kUnwrittenToo, .deliver_missing = words[5] == kMissingToo};
    inspect({.path = words[0], .x = words[1], .y = words[2], .unlabelled = unlabelled, .gaps = gaps},
            [&](std::string_view next) {
              if (!next.empty()) file = next;
              report_line(next.empty() ? kAliveLine : kFileLine, next);
            });
    return kSound;
  } catch (const std::bad_alloc&) {
    report_line(kErrorLine,
                fmt::format("{}: is damaged: reading it takes more memory than there is; copy it again, or make it "
                            "again from its source",
                            file));
  } catch (const UnknownName& error) {
    report_line(kErrorLine, error.what());
    return kUnknownName;
  } catch (const std::exception& error) {
    report_line(kErrorLine, error.what());
  }
  return kRefused;
}

void inspect_in_child(const std::filesystem::path& program, const ForeignFiles& files, const InspectionLimits& limits) {
  std::error_code unknown;
  if (is_packed(files.path) || !std::filesystem::exists(files.path, unknown)) return;
  InspectingChild child(
      {program.string(), std::string(kInspectionArgument), files.path.string(), files.x, files.y,
       std::string(files.unlabelled == Unlabelled::accepted ? kUnlabelledToo : std::string_view("labelled")),
       std::string(files.gaps.accept_unwritten ? kUnwrittenToo : std::string_view("written")),
       std::string(files.gaps.deliver_missing ? kMissingToo : std::string_view("complete")),
       fmt::format("{}", limits.memory_bytes)});
  if (child.started()) await_verdict(child, files, limits);
}

}  // namespace lockstep::io
