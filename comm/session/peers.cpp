#include "comm/session/peers.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <tuple>

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/session/control_groups.hpp"
#include "comm/session/own_cores.hpp"

namespace lockstep::comm {
namespace {

/// Identifies the kernel's boot; empty: unknown.
std::string boot_identity() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id") >> std::ws, boot);
  return boot;
}

/// Processes with one value run under one kernel and see each other's process ids.
std::uint64_t machine_identity(const std::string& boot) {
  struct stat pid_namespace {};
  if (boot.empty() || stat("/proc/self/ns/pid", &pid_namespace) != 0) return 0;
  return std::hash<std::string>{}(fmt::format("{} {}", boot, pid_namespace.st_ino));
}

ProcessState state_of(int pid) {
  const auto has_gone = [pid] { return kill(pid, 0) != 0 && errno == ESRCH; };
  if (has_gone()) return ProcessState::gone;
  // "pid (name) state …": the name may hold anything, so the state follows the last parenthesis.
  std::string line;
  std::getline(std::ifstream(fmt::format("/proc/{}/stat", pid)), line);
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= line.size()) {  // its parent may have collected it
    return has_gone() ? ProcessState::gone : ProcessState::out_of_sight;
  }
  switch (line[name_end + 2]) {
    case 'T':
    case 't':
      return ProcessState::stopped;
    case 'D':
      return ProcessState::blocked;
    case 'Z':
    case 'X':
      return ProcessState::gone;
    default:
      return ProcessState::running;
  }
}

/// True for processes on one machine, whatever they pretend.
bool truly_together(const PeerInfo& one, const PeerInfo& other) {
  return one.machine != 0 && one.machine == other.machine && one.host == other.host;
}

}  // namespace

PeerInfo own_info() {
  PeerInfo info;
  if (gethostname(info.host.data(), info.host.size() - 1) != 0) std::strcpy(info.host.data(), "unknown");
  const std::string boot = boot_identity();
  info.machine = machine_identity(boot);
  info.kernel = boot.empty() ? 0 : std::hash<std::string>{}(boot);
  info.pid = static_cast<std::int32_t>(getpid());
  if (const auto group = tightest_cpu_group()) {
    info.cpu_group = std::hash<std::string>{}(group->name);
    info.group_cpus = group->cpus;
  }
  for (const int core : own_cores()) {
    const std::size_t bit = static_cast<std::size_t>(core) % (64 * info.cores.size());
    info.cores[bit / 64] |= std::uint64_t{1} << bit % 64;
  }
  return info;
}

std::string PeerTable::describe(int rank) const {
  return fmt::format("rank {} (host {}, pid {})", first_rank_ + rank, host(rank), info(rank).pid);
}

bool PeerTable::same_machine(int one, int other) const {
  return one == other ||
         (truly_together(info(one), info(other)) && info(one).pretended_machine == info(other).pretended_machine);
}

std::vector<std::vector<int>> PeerTable::machines() const {
  std::vector<std::vector<int>> result;
  std::map<std::tuple<std::uint64_t, std::string, std::int32_t>, std::size_t> known;
  for (int rank = 0; rank < size(); ++rank) {
    const PeerInfo& own = info(rank);
    const auto [place, is_new] =
        known.try_emplace({own.machine, own.host.data(), own.pretended_machine}, result.size());
    if (own.machine == 0 || is_new) {  // 0: the rank's machine is unknown, so it counts as alone
      place->second = result.size();
      result.emplace_back();
    }
    result[place->second].push_back(rank);
  }
  return result;
}

ProcessState PeerTable::process_state(int rank) const {
  if (!truly_together(info(own_rank_), info(rank))) return ProcessState::out_of_sight;
  const ProcessState state = state_of(info(rank).pid);
  // A machine that only pretends to be another still shows one fact: that a process has died.
  return same_machine(rank) || state == ProcessState::gone ? state : ProcessState::out_of_sight;
}

int PeerTable::cores_left(int threads) const {
  std::array<std::uint64_t, PeerInfo::kCoreWords> together{};
  int ranks = 0, cores = 0;
  std::map<std::uint64_t, double> groups;
  bool all_limited = true;
  for (int rank = 0; rank < size(); ++rank) {
    const bool same_kernel = info(rank).kernel != 0 && info(rank).kernel == info(own_rank_).kernel;
    if (rank != own_rank_ && !same_kernel) continue;
    ++ranks;
    all_limited = all_limited && info(rank).cpu_group != 0;
    groups[info(rank).cpu_group] = info(rank).group_cpus;
    for (std::size_t i = 0; i < together.size(); ++i) together[i] |= info(rank).cores[i];
  }
  for (const std::uint64_t word : together) cores += std::popcount(word);
  if (all_limited) {
    double cpus = 0;
    for (const auto& [group, its] : groups) cpus += its;
    cores = std::min(cores, static_cast<int>(cpus));
  }
  return cores - threads * ranks;
}

const char* explanation(ProcessState state) {
  switch (state) {
    case ProcessState::running:
      return "Its process runs: it computes, or is caught in a loop.";
    case ProcessState::stopped:
      return "Its process is stopped (SIGSTOP, or a debugger).";
    case ProcessState::blocked:
      return "Its process is blocked in the kernel, most often by a slow or dead file system.";
    case ProcessState::gone:
      return "Its process has died.";
    case ProcessState::out_of_sight:
      break;
  }
  return "It may be stopped, swapped out or cut off.";
}

std::string seconds_text(double seconds) {
  return seconds < 9.95 ? fmt::format("{:.2g}", std::round(seconds * 10) / 10) : fmt::format("{:.0f}", seconds);
}

}  // namespace lockstep::comm
