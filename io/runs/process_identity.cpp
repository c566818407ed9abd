#include "io/runs/process_identity.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/files/durable_file.hpp"

namespace lockstep::io {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : std::string("unknown");
}

std::string boot_of_kernel() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  return boot;
}

std::uint64_t own_pid_namespace() {
  struct stat status {};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? static_cast<std::uint64_t>(status.st_ino) : 0;
}

/// State of a process as /proc shows it.
struct Status {
  char state = '?';
  std::uint64_t started = 0;
};

/// Parses /proc/PID/stat (proc(5)): PID (NAME) STATE ..., with the start time in field 22. NAME may hold any
/// characters.
std::optional<Status> status_of(const std::string& process) {
  std::string line;
  std::getline(std::ifstream("/proc/" + process + "/stat"), line);
  const std::size_t name_ends = line.rfind(')');
  if (name_ends == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_ends + 1));
  Status status;
  fields >> status.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  if (!(fields >> status.started)) return std::nullopt;
  return status;
}

/// False in a container that sees the /proc of its host, where process ids mean other processes.
bool proc_numbers_as_here() {
  std::error_code unknown;
  return std::filesystem::read_symlink("/proc/self", unknown) == std::to_string(::getpid());
}

template <class Number>
void read_number(std::string_view text, Number& number) {
  Number found = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), found);
  if (error == std::errc{} && end == text.data() + text.size()) number = found;
}

}  // namespace

ProcessIdentity this_process() {
  return {.host = host_name(),
          .pid = ::getpid(),
          .boot = boot_of_kernel(),
          .pid_namespace = own_pid_namespace(),
          .started = status_of("self").value_or(Status{}).started,
          .token = random_token()};
}

std::string to_text(const ProcessIdentity& process) {
  std::string text = fmt::format("host {}\npid {}\n", process.host, process.pid);
  if (!process.boot.empty()) text += fmt::format("boot {}\n", process.boot);
  if (process.pid_namespace != 0) text += fmt::format("namespace {}\n", process.pid_namespace);
  if (process.started != 0) text += fmt::format("started {}\n", process.started);
  return text + fmt::format("token {}\n", process.token);
}

ProcessIdentity process_identity_from(std::string_view text) {
  ProcessIdentity process;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::string_view key = line.substr(0, line.find(' '));
    const std::string_view value = line.substr(std::min(line.size(), key.size() + 1));
    if (key == "host") process.host = value;
    if (key == "pid") read_number(value, process.pid);
    if (key == "boot") process.boot = value;
    if (key == "namespace") read_number(value, process.pid_namespace);
    if (key == "started") read_number(value, process.started);
    if (key == "token") process.token = value;
  }
  return process;
}

bool on_one_kernel(const ProcessIdentity& a, const ProcessIdentity& b) { return !a.boot.empty() && a.boot == b.boot; }

Presence presence_of(const ProcessIdentity& process) {
  const bool can_look = !process.boot.empty() && process.boot == boot_of_kernel() && process.pid_namespace != 0 &&
                        process.pid_namespace == own_pid_namespace() && process.pid > 0;
  if (!can_look) return Presence::unseen;
  if (::kill(static_cast<pid_t>(process.pid), 0) != 0 && errno == ESRCH) return Presence::gone;
  if (!proc_numbers_as_here()) return Presence::here;
  const std::optional<Status> now = status_of(std::to_string(process.pid));
  if (!now) return Presence::here;  // a process of another user, on a system that hides them
  const bool ended = now->state == 'Z' || now->state == 'X';
  const bool other = process.started != 0 && now->started != process.started;
  return ended || other ? Presence::gone : Presence::here;
}

}  // namespace lockstep::io
