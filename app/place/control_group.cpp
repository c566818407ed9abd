#include "app/place/control_group.hpp"

#include <fstream>
#include <sstream>

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;

/// Limits from here on mean "no limit": version 1 writes the largest multiple of a page then.
constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 60;

std::optional<std::uint64_t> number_in(const fs::path& file) {
  std::uint64_t value = 0;
  if (!(std::ifstream(file) >> value)) return std::nullopt;  // version 2 writes "max" if there is no limit
  return value;
}

/// Returns an entry of memory.stat; 0 if it is missing.
std::uint64_t entry(const fs::path& file, const std::string& name) {
  std::ifstream lines(file);
  std::string key;
  for (std::uint64_t value = 0; lines >> key >> value;) {
    if (key == name) return value;
  }
  return 0;
}

struct Names {
  const char *limit, *used, *file_cache;
};
constexpr Names kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr Names kVersion2{"memory.max", "memory.current", "inactive_file"};

void look(const fs::path& folder, const Names& names, std::optional<MemoryGroup>& tightest) {
  const auto limit = number_in(folder / names.limit);
  const auto used = number_in(folder / names.used);
  if (!limit || !used || *limit >= kUnlimited) return;
  const std::uint64_t cache = entry(folder / "memory.stat", names.file_cache);
  const MemoryGroup group{.name = folder.string(), .limit = *limit, .used = *used > cache ? *used - cache : 0};
  if (!tightest || group.free() < tightest->free()) tightest = group;
}

}  // namespace

std::optional<MemoryGroup> tightest_memory_group(const comm::ControlGroupFiles& files) {
  std::optional<MemoryGroup> tightest;
  for (const comm::ControlGroup& group : comm::control_groups("memory", files)) {
    look(group.folder, group.version == 2 ? kVersion2 : kVersion1, tightest);
  }
  return tightest;
}

}  // namespace lockstep::app
