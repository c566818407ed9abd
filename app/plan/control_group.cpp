#include "app/plan/control_group.hpp"

#include <fstream>
#include <iterator>
#include <sstream>

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;

/// Version 1 expresses "no limit" as the largest multiple of a page.
constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 60;

std::optional<std::uint64_t> number_in(const fs::path& file) {
  std::uint64_t value = 0;
  if (!(std::ifstream(file) >> value)) return std::nullopt;  // "max" is no number
  return value;
}

/// An entry of memory.stat.
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

std::optional<MemoryGroup> tightest_memory_group(const fs::path& groups, const fs::path& own) {
  std::optional<MemoryGroup> tightest;
  std::ifstream lines(own);
  // Lines like "4:memory:/job_7/step_0", and in version 2 "0::/job_7/step_0".
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool version_2 = controllers == ",,";
    if (!version_2 && controllers.find(",memory,") == std::string::npos) continue;
    const Names& names = version_2 ? kVersion2 : kVersion1;
    const fs::path root = version_2 ? groups : groups / "memory";
    // In a container the path may be the host's, and the mount here may begin at one of its subfolders.
    for (fs::path path = fs::path(line.substr(second + 1)).relative_path();; path = path.parent_path()) {
      look(root / path, names, tightest);
      if (path.empty()) break;
    }
  }
  return tightest;
}

}  // namespace lockstep::app
