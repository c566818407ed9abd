#include "comm/host/shared_segment.hpp"

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lockstep::comm {
namespace {

[[noreturn]] void fail(const std::string& what, int error) {
  throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(error)));
}

}  // namespace

SharedSegment::SharedSegment(int descriptor, std::size_t bytes) : size_(bytes), descriptor_(descriptor) {
  void* const address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor, 0);
  if (address == MAP_FAILED) {
    const int error = errno;
    close_descriptor();
    fail(fmt::format("cannot map {} bytes of shared memory", bytes), error);
  }
  data_ = static_cast<std::byte*>(address);
}

SharedSegment SharedSegment::create(std::size_t bytes) {
  const int descriptor = memfd_create("lockstep", MFD_CLOEXEC);
  if (descriptor < 0) fail("cannot create shared memory (memfd_create)", errno);
  if (ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) {
    const int error = errno;
    close(descriptor);
    fail(fmt::format("cannot size shared memory to {} bytes", bytes), error);
  }
  if (const int error = posix_fallocate(descriptor, 0, static_cast<off_t>(bytes)); error != 0) {
    close(descriptor);
    fail(fmt::format("cannot take {} bytes of shared memory from the system", bytes), error);
  }
  return SharedSegment(descriptor, bytes);
}

SharedSegment SharedSegment::attach(int pid, int descriptor, std::size_t bytes) {
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, descriptor);
  const int own = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (own < 0) fail(fmt::format("cannot open the shared memory of process {} ({})", pid, path), errno);
  struct stat status {};
  if (fstat(own, &status) != 0 || static_cast<std::size_t>(status.st_size) != bytes) {
    close(own);
    throw std::runtime_error(fmt::format("{} is not the shared memory of {} bytes expected there", path, bytes));
  }
  SharedSegment segment(own, bytes);
  segment.close_descriptor();
  return segment;
}

SharedSegment::~SharedSegment() {
  if (data_) munmap(data_, size_);
  close_descriptor();
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void SharedSegment::close_descriptor() noexcept {
  if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
}

}  // namespace lockstep::comm
