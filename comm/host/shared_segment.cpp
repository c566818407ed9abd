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
  const int kind = descriptor < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* const address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kind, descriptor, 0);
  if (address == MAP_FAILED) {
    const int error = errno;
    close_descriptor();
    fail(fmt::format("cannot map {} bytes of shared memory", bytes), error);
  }
  data_ = static_cast<std::byte*>(address);
  madvise(data_, size_, MADV_HUGEPAGE);  // only a hint: most systems keep shared memory in small pages
}

void SharedSegment::take_pages() {
#if defined(MADV_POPULATE_WRITE)
  madvise(data_, size_, MADV_POPULATE_WRITE);  // by page faults, which may use huge pages; the rest follows below
#endif
  if (descriptor_ < 0) return;
  if (const int error = posix_fallocate(descriptor_, 0, static_cast<off_t>(size_)); error != 0) {
    fail(fmt::format("cannot take {} bytes of shared memory from the system", size_), error);
  }
}

SharedSegment SharedSegment::create(std::size_t bytes) {
  const int descriptor = memfd_create("lockstep", MFD_CLOEXEC);
  if (descriptor < 0) fail("cannot create shared memory (memfd_create)", errno);
  if (ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) {
    const int error = errno;
    close(descriptor);
    fail(fmt::format("cannot size shared memory to {} bytes", bytes), error);
  }
  SharedSegment segment(descriptor, bytes);
  segment.take_pages();
  return segment;
}

SharedSegment SharedSegment::alone(std::size_t bytes) {
  SharedSegment segment(-1, bytes);
  segment.take_pages();
  return segment;
}

SharedSegment SharedSegment::attach(int descriptor, std::size_t bytes) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0 || static_cast<std::size_t>(status.st_size) != bytes) {
    close(descriptor);
    throw std::runtime_error(fmt::format("what a peer has sent is not its shared memory of {} bytes", bytes));
  }
  SharedSegment segment(descriptor, bytes);
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
