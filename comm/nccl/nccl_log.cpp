#include "comm/nccl/nccl_log.hpp"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lockstep::comm {
namespace {

/// Where NCCL writes: it opens its log once and keeps it to the end of the process, and so must we.
int nccl_descriptor = -1;

/// The descriptor of this process, other than `own`, that is open on the same file; -1: none.
int other_descriptor_of(int own) {
  struct stat wanted {};
  if (fstat(own, &wanted) != 0) return -1;
  std::error_code unreadable;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", unreadable)) {
    const int descriptor = std::atoi(entry.path().filename().c_str());
    struct stat found {};
    if (descriptor != own && fstat(descriptor, &found) == 0 && found.st_dev == wanted.st_dev &&
        found.st_ino == wanted.st_ino) {
      return descriptor;
    }
  }
  return -1;
}

/// Whatever `descriptor` was open on, it is now open on the file of `target`. The stream above it does not notice.
void lead(int descriptor, int target) { dup3(target, descriptor, O_CLOEXEC); }

}  // namespace

NcclLog::NcclLog() {
  const bool first = nccl_descriptor < 0;
  if (first && (std::getenv("NCCL_DEBUG") != nullptr || std::getenv("NCCL_DEBUG_FILE") != nullptr)) return;
  memory_ = memfd_create("lockstep-nccl-log", MFD_CLOEXEC);
  if (memory_ < 0) return;
  if (first) {
    setenv("NCCL_DEBUG", "INFO", 1);
    setenv("NCCL_DEBUG_SUBSYS", "INIT,GRAPH,TUNING", 0);
    setenv("NCCL_DEBUG_FILE", fmt::format("/proc/self/fd/{}", memory_).c_str(), 1);
  } else {
    lead(nccl_descriptor, memory_);
  }
}

NcclLog::~NcclLog() {
  if (memory_ < 0) return;
  if (nccl_descriptor < 0) {
    nccl_descriptor = other_descriptor_of(memory_);
    for (const char* name : {"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"}) unsetenv(name);
  }
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nccl_descriptor >= 0 && nowhere >= 0) lead(nccl_descriptor, nowhere);
  if (nowhere >= 0) close(nowhere);
  close(memory_);
}

std::string NcclLog::text() const {
  std::string text;
  std::array<char, 4096> piece{};
  for (off_t offset = 0; memory_ >= 0;) {
    const ssize_t count = pread(memory_, piece.data(), piece.size(), offset);
    if (count <= 0) break;
    text.append(piece.data(), static_cast<std::size_t>(count));
    offset += count;
  }
  return text;
}

}  // namespace lockstep::comm
