/// \file
/// The control groups (cgroups) of this process, by which Slurm, a container or systemd limits what it may use, however
/// much the host has. Versions 1 and 2.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::comm {

/// The folder that the file system of groups is mounted at, and the list of a process's groups.
struct ControlGroupFiles {
  std::filesystem::path groups = "/sys/fs/cgroup";
  std::filesystem::path own = "/proc/self/cgroup";
};

struct ControlGroup {
  std::filesystem::path folder;  ///< the same path, the same group (on one host); it need not exist
  int version = 2;
};

/// Those that `controller` ("memory") counts in, from the process's own up to the root.
std::vector<ControlGroup> control_groups(std::string_view controller, const ControlGroupFiles& files = {});

struct CpuGroup {
  std::string name;  ///< its folder
  double cpus = 0;   ///< CPUs that all its processes together may use: 1.5 is three CPUs for half of the time
};

/// The one of this process's groups that may use fewest CPUs, by its quota (cpu.max) or its set of CPUs; nullopt: none
/// has less than `host_cpus`.
std::optional<CpuGroup> tightest_cpu_group(int host_cpus, const ControlGroupFiles& files = {});
/// The same of the CPUs that this host has.
std::optional<CpuGroup> tightest_cpu_group();

}  // namespace lockstep::comm
