/// \file
/// Copies batches to the GPU: a separate stream fills slots of device memory while the operations read other slots.
///
///   copy stream      wait released[s]   copy the batch to s    record uploaded[s]
///   compute stream                                            wait uploaded[s]   ... read slot s ...   record
///   released[s]
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

  /// Backend::stage, release_stage and wait_staged; `compute` is the stream of the operations. None of them may be
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
