/// \file
/// The control group (cgroup) that limits this process's memory: the allowance of Slurm, a container or systemd, which
/// may be less than the host's memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "comm/session/control_groups.hpp"

namespace lockstep::app {

struct MemoryGroup {
  std::string name;         ///< its folder: the same text, the same group (on one host)
  std::uint64_t limit = 0;  ///< bytes
  std::uint64_t used = 0;   ///< bytes, without the page cache, which the kernel can reclaim

  std::uint64_t free() const noexcept { return used < limit ? limit - used : 0; }
};

/// The group with the least left among this process's groups, from its own up to the root; nullopt: none has a limit.
/// CPUs: comm::tightest_cpu_group.
std::optional<MemoryGroup> tightest_memory_group(const comm::ControlGroupFiles& files = {});

}  // namespace lockstep::app
