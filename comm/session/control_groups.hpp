/// \file
/// The control groups (cgroups) of this process. Slurm, containers and systemd use them to limit its resources,
/// regardless of the host's. Versions 1 and 2.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::comm {

/// Mount point of the control groups' file system, and the file that lists the groups of a process.
struct ControlGroupFiles {
  std::filesystem::path groups = "/sys/fs/cgroup";
  std::filesystem::path own = "/proc/self/cgroup";
};

struct ControlGroup {
  std::filesystem::path folder;  ///< identifies the group on one host; need not exist
  int version = 2;
};

/// The groups of this process under `controller` (for example "memory"), from its own up to the root.
std::vector<ControlGroup> control_groups(std::string_view controller, const ControlGroupFiles& files = {});

struct CpuGroup {
  std::string name;  ///< its folder
  double cpus = 0;   ///< CPUs that all processes of the group together may use; 1.5: three CPUs for half of the time
};

/// The group of this process that allows the fewest CPUs, by its quota (cpu.max) or its set of CPUs. nullopt: none
/// allows fewer than `host_cpus`.
std::optional<CpuGroup> tightest_cpu_group(int host_cpus, const ControlGroupFiles& files = {});
/// As above, for the number of CPUs of this host.
std::optional<CpuGroup> tightest_cpu_group();

}  // namespace lockstep::comm
