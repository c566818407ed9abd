#include "model/cuda/write_ring.hpp"

#include <algorithm>
#include <cassert>

namespace lockstep::model::cuda {

WriteRing::WriteRing(PinnedMemory& memory) : block_(memory, kSlots * kSlotBytes) {
  for (Event& event : read_) event = make_event();
}

void WriteRing::write(std::span<const std::byte> host, void* to, cudaStream_t stream) {
  assert(host.size() <= kSlotBytes);
  if (host.empty()) return;
  const std::size_t slot = next_++ % kSlots;
  check(cudaEventSynchronize(read_[slot].get()), "waiting for an earlier small copy");
  auto* const from = static_cast<std::byte*>(block_.data()) + slot * kSlotBytes;
  std::ranges::copy(host, from);
  check(cudaMemcpyAsync(to, from, host.size(), cudaMemcpyHostToDevice, stream), "a small copy");
  check(cudaEventRecord(read_[slot].get(), stream), "marking a small copy");
}

}  // namespace lockstep::model::cuda
