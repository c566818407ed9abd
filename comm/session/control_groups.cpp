#include "comm/session/control_groups.hpp"

#include <charconv>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <unistd.h>

namespace lockstep::comm {
namespace {

namespace fs = std::filesystem;

/// The number of CPUs in a list such as "0-3,8"; 0: no list.
int count_cpus(const fs::path& file) {
  std::ifstream stream(file);
  int count = 0;
  for (std::string part; std::getline(stream, part, ',');) {
    int first = 0, last = 0;
    const char* const end = part.data() + part.size();
    auto [next, error] = std::from_chars(part.data(), end, first);
    if (error != std::errc()) return 0;
    last = first;
    if (next != end && *next == '-' && std::from_chars(next + 1, end, last).ec != std::errc()) return 0;
    count += last - first + 1;
  }
  return count;
}

/// The quota in CPUs: microseconds of CPU time per microsecond; nullopt: no limit.
std::optional<double> quota(const ControlGroup& group) {
  double quota = 0, period = 0;
  if (group.version == 2) {
    std::ifstream both(group.folder / "cpu.max");
    if (!(both >> quota >> period)) return std::nullopt;  // "max" is not a number
  } else {
    std::ifstream first(group.folder / "cpu.cfs_quota_us"), second(group.folder / "cpu.cfs_period_us");
    if (!(first >> quota) || !(second >> period)) return std::nullopt;  // -1: no limit
  }
  return quota > 0 && period > 0 ? std::optional(quota / period) : std::nullopt;
}

}  // namespace

std::vector<ControlGroup> control_groups(std::string_view controller, const ControlGroupFiles& files) {
  std::vector<ControlGroup> all;
  std::ifstream lines(files.own);
  // Example: "4:memory:/job_7/step_0"; with version 2: "0::/job_7/step_0".
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const bool version_2 = controllers == ",,";
    if (!version_2 && controllers.find(fmt::format(",{},", controller)) == std::string::npos) continue;
    const fs::path root = version_2 ? files.groups : files.groups / controller;
    // In a container this may be the host's path, while the container's root is mounted here: try shorter paths, too.
    for (fs::path path = fs::path(line.substr(second + 1)).relative_path();; path = path.parent_path()) {
      all.push_back({.folder = path.empty() ? root : root / path, .version = version_2 ? 2 : 1});
      if (path.empty()) break;
    }
  }
  return all;
}

std::optional<CpuGroup> tightest_cpu_group(int host_cpus, const ControlGroupFiles& files) {
  CpuGroup tightest{.name = "", .cpus = static_cast<double>(host_cpus)};
  const auto look = [&](const ControlGroup& group, double cpus) {
    if (cpus > 0 && cpus < tightest.cpus) tightest = {.name = group.folder.string(), .cpus = cpus};
  };
  for (const ControlGroup& group : control_groups("cpu", files)) look(group, quota(group).value_or(0));
  for (const ControlGroup& group : control_groups("cpuset", files)) {
    const char* const in_effect = group.version == 2 ? "cpuset.cpus.effective" : "cpuset.effective_cpus";
    look(group, count_cpus(group.folder / in_effect));
    if (group.version == 1) look(group, count_cpus(group.folder / "cpuset.cpus"));
  }
  return tightest.name.empty() ? std::nullopt : std::optional(tightest);
}

std::optional<CpuGroup> tightest_cpu_group() {
  return tightest_cpu_group(static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
}

}  // namespace lockstep::comm
