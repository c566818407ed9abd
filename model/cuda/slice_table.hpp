/// \file
/// The slices of an update as the kernels take them: chunks in device memory.
#pragma once

#include <span>
#include <vector>

#include "model/cuda/device_memory.hpp"
#include "model/cuda/update_chunks.hpp"

namespace lockstep::model::cuda {

/// Chunks are made when slices come for the first time and stay for good, for recorded work knows their address: it is
/// for the few sets of slices that a training has.
class SliceTable {
 public:
  SliceTable(DeviceMemory& memory, cudaStream_t stream) : memory_(memory), stream_(stream) {}

  /// Slices that are equal to earlier ones cost a comparison; new ones an allocation and a copy that is waited for, so
  /// they must not come first while the stream is being recorded (`recording`).
  UpdateChunks chunks(std::span<const UpdateSlice> slices, bool recording);

 private:
  struct Entry {
    std::vector<UpdateSlice> slices;
    Block chunk_block, slice_block, part_block, ratio_block;
    UpdateChunks chunks;
  };

  DeviceMemory& memory_;
  cudaStream_t stream_;
  std::vector<Entry> entries_;
};

}  // namespace lockstep::model::cuda
