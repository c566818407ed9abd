/// \file
/// A segment of memory that processes of one machine map together.
///
/// It is a memfd, a memory file without a name. An MPI window (MPI_Win_allocate_shared) would be a named file under
/// /dev/shm. Containers limit that folder to 64 MiB by default, and a kill -9 between the file's creation and its
/// unlinking leaves it behind. A memfd uses ordinary memory and ends with its last process, at any instant. Peers get
/// its descriptor through a local socket (descriptor_exchange.hpp); if that fails, the caller uses messages.
///
/// PAGES. Each rank creates and touches its own segment, so the pages are on its own NUMA node, and in huge pages if
/// the system provides them (/sys/kernel/mm/transparent_hugepage/shmem_enabled: advise). For the others' segments a
/// rank fills its page tables on first use: otherwise 64 ranks with 1 GiB each would use 8 GiB of tables at the start.
#pragma once

#include <cstddef>

namespace lockstep::comm {

class SharedSegment {
 public:
  /// A new segment of zeros, with its pages allocated (a shortage is an error now, not a SIGBUS later). Throws
  /// std::runtime_error with the reason.
  static SharedSegment create(std::size_t bytes);
  /// Private memory of this process, in place of a segment that no other process maps. Throws std::runtime_error.
  static SharedSegment alone(std::size_t bytes);
  /// Maps a peer's segment and takes ownership of its descriptor. Throws std::runtime_error.
  static SharedSegment attach(int descriptor, std::size_t bytes);

  SharedSegment() = default;
  ~SharedSegment();
  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  /// The descriptor for peers; -1 after close_descriptor().
  int descriptor() const noexcept { return descriptor_; }
  /// Call it after every peer has attached: the mapping stays, the descriptor is no longer needed.
  void close_descriptor() noexcept;

 private:
  SharedSegment(int descriptor, std::size_t bytes);
  void take_pages();

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  int descriptor_ = -1;
};

}  // namespace lockstep::comm
