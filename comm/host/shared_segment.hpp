/// \file
/// A piece of memory that processes of one machine map together.
///
/// It is a memfd: a memory file without a name. An MPI window (MPI_Win_allocate_shared) would be a named file under
/// /dev/shm, which containers limit to 64 MiB by default and which a kill -9 between its creation and its unlinking
/// leaves behind; a memfd lives in ordinary memory and ends with its last process, at whatever instant that dies. Peers
/// get its descriptor by a local socket (descriptor_exchange.hpp); where that fails the caller sends messages.
///
/// PAGES. Each rank makes and touches its own segment, so its pages lie on its own NUMA node, in huge pages where the
/// system has them to give (/sys/kernel/mm/transparent_hugepage/shmem_enabled: advise). Of the others' segments a rank
/// fills its page tables as it comes to use them: 64 ranks with 1 GiB each would else take 8 GiB of tables at the
/// start.
#pragma once

#include <cstddef>

namespace lockstep::comm {

class SharedSegment {
 public:
  /// A new segment of zeros, its pages already taken from the system (a shortage is an error now, not a SIGBUS later).
  /// Throws std::runtime_error with the reason.
  static SharedSegment create(std::size_t bytes);
  /// Memory of this process alone, in the place of one that nobody else maps. Throws std::runtime_error.
  static SharedSegment alone(std::size_t bytes);
  /// Maps the segment of a peer, whose descriptor it takes over. Throws std::runtime_error.
  static SharedSegment attach(int descriptor, std::size_t bytes);

  SharedSegment() = default;
  ~SharedSegment();
  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  /// For peers to attach; -1 after close_descriptor().
  int descriptor() const noexcept { return descriptor_; }
  /// Once every peer has attached: the mapping stays, the descriptor is not needed any more.
  void close_descriptor() noexcept;

 private:
  SharedSegment(int descriptor, std::size_t bytes);
  void take_pages();

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  int descriptor_ = -1;
};

}  // namespace lockstep::comm
