#include "comm/session/start_folders.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace lockstep::comm {
namespace {

constexpr std::uint64_t kMiB = 1024 * 1024;
/// Open MPI's launcher and ranks share their data about the job in files of at least 4 MiB.
constexpr std::uint64_t kMinForStart = 5 * kMiB;
/// Buffers for messages between ranks of one host.
constexpr std::uint64_t kMinForMessages = 4 * kMiB;

std::string value_of(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

std::string obstacle_in(const StartFolder& place) {
  const std::string& name = place.folder.native();
  struct statvfs room {};
  if (statvfs(name.c_str(), &room) != 0) {
    return fmt::format("{} cannot be used ({}): {}", name, std::strerror(errno), place.remedy);
  }
  if ((room.f_flag & ST_RDONLY) != 0) return fmt::format("{} is read-only: {}", name, place.remedy);
  const std::uint64_t free = std::uint64_t{room.f_bavail} * room.f_frsize;
  if (free >= place.min_free) return "";
  return fmt::format("{} has {} KiB left, less than the {} KiB that MPI needs there: {}", name, free / 1024,
                     place.min_free / 1024, place.remedy);
}

}  // namespace

std::vector<StartFolder> start_folders() {
  std::vector<StartFolder> folders;
  // Without this variable the launcher sends the data about the job to the ranks, and uses no files.
  const std::string shared = value_of("PMIX_DSTORE_ESH_BASE_PATH");
  if (!shared.empty() && !value_of("OMPI_COMM_WORLD_SIZE").empty()) {
    folders.push_back(
        {.folder = shared, .remedy = "TMPDIR, set for mpirun, names another place", .min_free = kMinForStart});
    const std::string messages = value_of("OMPI_MCA_btl_vader_backing_directory");
    folders.push_back({.folder = messages.empty() ? "/dev/shm" : messages,
                       .remedy = "OMPI_MCA_btl_vader_backing_directory names another place",
                       .min_free = kMinForMessages,
                       .is_needed = false});
  }
  return folders;
}

std::string obstacle_in(const std::vector<StartFolder>& folders) {
  for (const StartFolder& folder : folders) {
    if (std::string obstacle = obstacle_in(folder); !obstacle.empty()) return obstacle;
  }
  return "";
}

}  // namespace lockstep::comm
