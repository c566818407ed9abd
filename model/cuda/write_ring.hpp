/// \file
/// Copies small values to the GPU. The value is copied at once into pinned memory, which is reused only after the
/// device has read it.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "model/cuda/device_memory.hpp"
#include "model/cuda/handles.hpp"

namespace lockstep::model::cuda {

class WriteRing {
 public:
  static constexpr std::size_t kSlots = 64;
  static constexpr std::size_t kSlotBytes = 256;

  explicit WriteRing(PinnedMemory& memory);
  /// Enqueues a write of at most kSlotBytes bytes to device memory. Blocks only if kSlots writes are pending.
  void write(std::span<const std::byte> host, void* to, cudaStream_t stream);

 private:
  Block block_;
  std::array<Event, kSlots> read_;
  std::size_t next_ = 0;
};

}  // namespace lockstep::model::cuda
