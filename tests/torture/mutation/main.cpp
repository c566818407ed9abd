// mutation_torture [OPTION...]: damages files of every kind that the program reads at random, and runs the code that
// reads them. Allowed outcomes: the file is accepted, or refused in a sentence of ours that names a file. Forbidden
// ones: a crash, a hang, another library's words, memory that only a header claims, or damage that a checksum should
// have detected.
//
// The cases run in a worker, this program started once more, which reports what it begins and the outcome. If it dies
// or falls silent, the case that it had begun is to blame, and another worker goes on with the next one. A case is a
// function of seed, subject and number.
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/files/durable_file.hpp"
#include "io/foreign_files.hpp"
#include "torture/mutation/cases.hpp"

namespace lockstep::torture {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

[[noreturn]] void usage(const std::string& error) {
  fmt::print(stderr,
             "mutation_torture: {}\nusage: mutation_torture --fixtures tests/io/fixtures [--seed N] [--cases N] "
             "[--seconds N]\n  [--hang-seconds N] [--keep FOLDER] [--only SUBJECT] [--first CASE] "
             "[--planted crash|hang|words|memory|altered]\n",
             error);
  std::exit(2);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) usage(name + " lacks its value");
    const std::string value = argv[i + 1];
    try {
      if (name == "--seed")
        options.seed = std::stoull(value);
      else if (name == "--cases")
        options.cases = std::stoll(value);
      else if (name == "--seconds")
        options.seconds = std::stod(value);
      else if (name == "--hang-seconds")
        options.hang_seconds = std::stod(value);
      else if (name == "--fixtures")
        options.fixtures = fs::absolute(value);
      else if (name == "--keep")
        options.keep = fs::absolute(value);
      else if (name == "--only")
        options.only = value;
      else if (name == "--first")
        options.first = std::stoll(value);
      else if (name == "--planted")
        options.planted = value;
      else if (name == "--scratch")
        options.scratch = value;
      else
        usage("unknown option " + name);
    } catch (const std::logic_error&) {
      usage(fmt::format("{} {}: not a number", name, value));
    }
  }
  if (options.fixtures.empty()) usage("--fixtures is missing");
  return options;
}

class Worker {
 public:
  Worker(const Options& options, const fs::path& folder, std::int64_t first) {
    std::vector<std::string> arguments{"mutation_torture",
                                       "--scratch",
                                       (folder / "work").string(),
                                       "--first",
                                       fmt::format("{}", first),
                                       "--seed",
                                       fmt::format("{}", options.seed),
                                       "--cases",
                                       fmt::format("{}", options.cases),
                                       "--fixtures",
                                       options.fixtures.string()};
    if (!options.only.empty()) arguments.insert(arguments.end(), {"--only", options.only});
    if (!options.planted.empty()) arguments.insert(arguments.end(), {"--planted", options.planted});
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    reading_ = io::Descriptor(ends[0]);
    const io::Descriptor writing(ends[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, writing.get(), STDOUT_FILENO);
    const int error = ::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, pointers.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) throw std::runtime_error("no process");
  }
  ~Worker() { end(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  enum class Event { line, silence, closed };
  Event next(std::string& line, double seconds) {
    while (true) {
      if (const std::size_t at = said_.find('\n'); at != std::string::npos) {
        line = said_.substr(0, at);
        said_.erase(0, at + 1);
        return Event::line;
      }
      pollfd wanted{.fd = reading_.get(), .events = POLLIN, .revents = 0};
      const int ready = ::poll(&wanted, 1, static_cast<int>(seconds * 1000));
      if (ready < 0 && errno == EINTR) continue;
      if (ready == 0) return Event::silence;
      std::array<char, 4096> buffer;
      const ssize_t got = ::read(reading_.get(), buffer.data(), buffer.size());
      if (got <= 0) return Event::closed;
      said_.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }
  /// Its status, as waitpid returns it.
  int end() {
    if (pid_ <= 0) return 0;
    ::kill(pid_, SIGKILL);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
  io::Descriptor reading_;
  std::string said_;
};

class Torture {
 public:
  Torture(const Options& options, fs::path folder)
      : options_(options), folder_(std::move(folder)), cases_(options_, folder_), counts_(cases_.subjects().size()) {
    cases_.make_samples();
  }

  void run() {
    const auto begin = Clock::now();
    const auto over = [&] {
      return options_.seconds > 0 && Clock::now() - begin > std::chrono::duration<double>(options_.seconds);
    };
    for (std::int64_t next = options_.first; next < options_.cases && !over();) {
      Worker worker(options_, folder_, next);
      std::string line;
      bool alive = true;
      while (alive && next < options_.cases && !over()) {
        switch (worker.next(line, options_.hang_seconds)) {
          case Worker::Event::line:
            heard(line, next);
            break;
          case Worker::Event::silence:
            alive = false;
            count(next++, hang, "silent");
            break;
          case Worker::Event::closed:
            alive = false;
            if (sound_) throw std::runtime_error(fmt::format("{}: its sound files are not read", name_of(next)));
            count(next++, crash, "the worker died");
            break;
        }
      }
    }
  }

  /// Prints the findings; true without any.
  bool print() const {
    fmt::print("{:<24}", "subject");
    for (const char* name : kNames) fmt::print("{:>10}", name);
    fmt::print("\n");
    std::array<std::int64_t, kOutcomes> all{};
    const auto row = [](const std::string& name, const std::array<std::int64_t, kOutcomes>& counts) {
      fmt::print("{:<24}", name);
      for (const std::int64_t count : counts) fmt::print("{:>10}", count);
      fmt::print("\n");
    };
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      row(cases_.subjects()[i].name, counts_[i]);
      for (int outcome = 0; outcome < kOutcomes; ++outcome) all[outcome] += counts_[i][outcome];
    }
    row("all", all);
    std::int64_t findings = 0;
    for (int outcome = 0; outcome < kOutcomes; ++outcome) findings += is_finding(outcome) ? all[outcome] : 0;
    fmt::print("seed {}: {} findings\n", options_.seed, findings);
    return findings == 0;
  }

 private:
  const std::string& name_of(std::int64_t number) const { return cases_.subjects()[cases_.subject_of(number)].name; }

  /// "begin N", "begin N sound", "end N OUTCOME TEXT"
  void heard(const std::string& line, std::int64_t& next) {
    sound_ = line.ends_with(" sound");
    if (!line.starts_with("end ")) return;
    char* rest = nullptr;
    std::strtoll(line.c_str() + 4, &rest, 10);
    const long outcome = std::strtol(rest, &rest, 10);
    count(next++, static_cast<Outcome>(outcome), *rest == ' ' ? rest + 1 : rest);
  }

  void count(std::int64_t number, Outcome outcome, const std::string& text) {
    ++counts_[cases_.subject_of(number)][outcome];
    if (!is_finding(outcome)) return;
    const Cases::Damage damage = cases_.damage(number);
    fmt::print("{}: {}, case {}, {}: {}\n", kNames[outcome], name_of(number), number, damage.target, text);
    std::fflush(stdout);
    if (options_.keep.empty()) return;
    fs::create_directories(options_.keep);
    std::string name = fmt::format("{}-{}-{}-{}", kNames[outcome], name_of(number), number,
                                   fs::path(damage.target).filename().string());
    std::replace_if(
        name.begin(), name.end(), [](char c) { return c == ' ' || c == ',' || c == '/'; }, '_');
    std::ofstream(options_.keep / name, std::ios::binary) << damage.bytes;
  }

  const Options& options_;
  fs::path folder_;
  Cases cases_;
  std::vector<std::array<std::int64_t, kOutcomes>> counts_;
  bool sound_ = false;  ///< the worker reads sound files
};

int run(const Options& options) {
  // Files live in memory: nothing here is worth a disk's time.
  const fs::path parent = ::access("/dev/shm", W_OK) == 0 ? fs::path("/dev/shm") : fs::temp_directory_path();
  std::string name = (parent / "lockstep-torture-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for the files");
  int code = 1;
  try {
    Torture torture(options, name);
    torture.run();
    code = torture.print() ? 0 : 1;
  } catch (...) {
    fs::remove_all(name);
    throw;
  }
  fs::remove_all(name);
  return code;
}

}  // namespace
}  // namespace lockstep::torture

int main(int argc, char** argv) {
  if (argc > 1 && argv[1] == lockstep::io::kInspectionArgument) {
    return lockstep::io::answer_inspection({argv + 2, argv + argc});
  }
  try {
    const lockstep::torture::Options options = lockstep::torture::parse(argc, argv);
    return options.scratch.empty() ? lockstep::torture::run(options) : lockstep::torture::work(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "mutation_torture: {}\n", error.what());
    return 1;
  }
}
