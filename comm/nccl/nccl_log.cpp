#include "comm/nccl/nccl_log.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lockstep::comm {
namespace {

/// Descriptor of the anonymous file that NCCL writes to. NCCL opens it once and keeps it until the process ends, so the
/// descriptor must stay open, too.
int log_memory = -1;
/// Memory before this offset has been freed, and reads as zeros.
off_t given_back = 0;

constexpr off_t kTail = 64 << 10, kTrimFrom = 4 * kTail;
constexpr std::size_t kMaxWarnings = 2 << 10;

off_t log_size() noexcept {
  struct stat found {};
  return log_memory >= 0 && fstat(log_memory, &found) == 0 ? found.st_size : 0;
}

std::string text_from(off_t offset) {
  std::string text;
  std::array<char, 4096> piece{};
  while (log_memory >= 0) {
    const ssize_t count = pread(log_memory, piece.data(), piece.size(), offset);
    if (count <= 0) break;
    text.append(piece.data(), static_cast<std::size_t>(count));
    offset += count;
  }
  return text;
}

/// The warning in a line: "host:1:2 [0] file.cc:12 NCCL WARN TEXT", or "… NCCL INFO file.cc:34 -> 3", which tells the
/// caller of the failed function. Empty for other lines.
std::string_view warning_of(std::string_view line) {
  constexpr std::string_view kWarn = " NCCL WARN ", kInfo = " NCCL INFO ";
  if (const std::size_t at = line.find(kWarn); at != std::string_view::npos) return line.substr(at + kWarn.size());
  const std::size_t info = line.find(kInfo);
  if (info == std::string_view::npos) return "";
  const std::string_view text = line.substr(info + kInfo.size());
  const std::string_view place = text.substr(0, text.find(' '));
  return place.find(".cc:") != std::string_view::npos && text.substr(place.size()).starts_with(" -> ") ? text : "";
}

}  // namespace

NcclLog::NcclLog() {
  if (log_memory < 0) {
    if (std::getenv("NCCL_DEBUG") != nullptr || std::getenv("NCCL_DEBUG_FILE") != nullptr) return;
    log_memory = memfd_create("lockstep-nccl-log", MFD_CLOEXEC);
    if (log_memory < 0) return;
  }
  begin_ = log_size();
  if (begin_ > 0) return;  // NCCL reads them only once
  setenv("NCCL_DEBUG", "INFO", 1);
  setenv("NCCL_DEBUG_SUBSYS", "INIT,GRAPH,TUNING", 0);
  setenv("NCCL_DEBUG_FILE", fmt::format("/proc/self/fd/{}", log_memory).c_str(), 1);
}

NcclLog::~NcclLog() {
  if (!listens()) return;
  for (const char* name : {"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"}) unsetenv(name);
}

bool NcclLog::listens() const noexcept { return log_memory >= 0; }

std::string NcclLog::text() const { return text_from(begin_); }

std::string last_nccl_warnings() {
  const std::string text = text_from(std::max(given_back, log_size() - kTail));
  std::vector<std::string_view> found;  // newest first
  std::size_t bytes = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = rest.ends_with('\n') ? rest.size() - 1 : rest.size();
    const std::size_t before = rest.substr(0, end).rfind('\n');
    const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
    const std::string_view warning = warning_of(rest.substr(begin, end - begin));
    rest = rest.substr(0, begin);
    if (warning.empty()) continue;
    bytes += warning.size();
    if (bytes > kMaxWarnings && !found.empty()) break;
    found.push_back(warning.substr(0, kMaxWarnings));
  }
  std::string said;
  for (auto warning = found.rbegin(); warning != found.rend(); ++warning) {
    said += said.empty() ? "; NCCL's last warnings: " : "; ";
    said += *warning;
  }
  return said;
}

void trim_nccl_log() noexcept {
  const off_t size = log_size();
  if (size - given_back < kTrimFrom) return;
  const off_t keep_from = size - kTail;
  if (fallocate(log_memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, given_back, keep_from - given_back) != 0)
    return;
  given_back = keep_from;
}

}  // namespace lockstep::comm
