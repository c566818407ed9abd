#include "comm/host/memory_limit.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <limits>

#include <fmt/format.h>

namespace lockstep::comm {
namespace {

/// Bytes of the entry "NAME:" in kB; the largest number without such a line.
std::size_t entry(std::string_view meminfo, std::string_view name) {
  constexpr std::size_t kUnknown = std::numeric_limits<std::size_t>::max();
  const std::size_t at = meminfo.find(name);
  if (at == std::string_view::npos) return kUnknown;
  std::string_view rest = meminfo.substr(at + name.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  std::size_t kilobytes = 0;
  const auto read = std::from_chars(rest.data(), rest.data() + rest.size(), kilobytes);
  return read.ec == std::errc() ? kilobytes * 1024 : kUnknown;
}

std::string gibibytes(double bytes) { return fmt::format("{:.1f} GiB", bytes / (1024.0 * 1024 * 1024)); }

}  // namespace

std::string memory_shortage(std::size_t bytes, int ranks, std::string_view meminfo) {
  const std::size_t total = entry(meminfo, "MemTotal:"), available = entry(meminfo, "MemAvailable:");
  const double together = static_cast<double>(bytes) * ranks;
  if (together <= static_cast<double>(total) && bytes <= available) return {};
  return fmt::format(
      "{} {} of memory, and the host has {}, {} of it free: take a smaller network or sum, or fewer ranks per host",
      ranks == 1 ? "one rank wants" : fmt::format("each of {} ranks on a host wants", ranks),
      gibibytes(static_cast<double>(bytes)), gibibytes(static_cast<double>(total)),
      gibibytes(static_cast<double>(available)));
}

std::string read_meminfo() {
  std::ifstream file("/proc/meminfo");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace lockstep::comm
