/// \file
/// The control group (cgroup) that limits the memory of this process. Slurm, a container or systemd may allow less
/// memory than the host has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "comm/session/control_groups.hpp"

namespace lockstep::app {

struct MemoryGroup {
  std::string name;         ///< folder of the group, which identifies it on its host
  std::uint64_t limit = 0;  ///< bytes
  std::uint64_t used = 0;   ///< bytes, without the page cache, which the kernel can reclaim

  std::uint64_t free() const noexcept { return used < limit ? limit - used : 0; }
};

/// Returns the group with the least free memory among the groups of this process, from its own up to the root; nullopt
/// if none has a limit. For CPUs see comm::tightest_cpu_group.
std::optional<MemoryGroup> tightest_memory_group(const comm::ControlGroupFiles& files = {});

}  // namespace lockstep::app
