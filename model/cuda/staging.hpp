/// \file
/// Copies batches to the GPU: a copy stream fills slots of device memory while operations read other slots.
///
/// For slot s, the copy stream waits for the event released[s], copies the batch and records uploaded[s]. The compute
/// stream waits for uploaded[s], runs the operations that read the slot, and records released[s].
#pragma once

#include <cstddef>
#include <vector>

#include "model/backend.hpp"
#include "model/cuda/device_memory.hpp"
#include "model/cuda/handles.hpp"

namespace lockstep::model::cuda {

class Staging {
 public:
  /// The memory must outlive the staging.
  Staging(DeviceMemory& memory, int slots, const StageBytes& bytes);

  /// Implement Backend::stage, release_stage and wait_staged. compute: stream of the operations. They must not be
  /// recorded.
  Batch stage(int slot, const Batch& host, cudaStream_t compute);
  void release(int slot, cudaStream_t compute);
  void wait();

 private:
  struct Slot {
    std::byte* x = nullptr;
    std::byte* y = nullptr;
    std::byte* keys = nullptr;
    std::byte* weights = nullptr;
    Event uploaded, released;
  };
  Tensor upload(const Tensor& host, std::byte* to);

  Block block_;
  Stream copies_;
  std::vector<Slot> slots_;
  cudaEvent_t latest_ = nullptr;  ///< last upload; copies are in order
};

}  // namespace lockstep::model::cuda
