/// \file
/// The control group (cgroup) that limits this process's memory: what Slurm, a container or systemd allows, however
/// much the host has.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace lockstep::app {

struct MemoryGroup {
  std::string name;         ///< its folder: the same text, the same group (on one host)
  std::uint64_t limit = 0;  ///< bytes
  std::uint64_t used = 0;   ///< bytes, without the page cache that would be given back

  std::uint64_t free() const noexcept { return used < limit ? limit - used : 0; }
};

/// Of this process's groups, from its own up to the root, the one with the least left; nullopt: none has a limit.
/// Versions 1 and 2. `groups`: where the file system of groups is mounted; `own`: the list of a process's groups.
std::optional<MemoryGroup> tightest_memory_group(const std::filesystem::path& groups = "/sys/fs/cgroup",
                                                 const std::filesystem::path& own = "/proc/self/cgroup");

}  // namespace lockstep::app
