/// \file
/// The slices of an update in the form that kernels read: chunks in device memory.
#pragma once

#include <span>
#include <vector>

#include "model/cuda/device_memory.hpp"
#include "model/cuda/kernels/update_chunks.hpp"

namespace lockstep::model::cuda {

/// The first use of a set of slices makes its chunks. They are kept until destruction, because recorded work uses their
/// address. For the few sets of slices of a training.
class SliceTable {
 public:
  SliceTable(DeviceMemory& memory, cudaStream_t stream) : memory_(memory), stream_(stream) {}

  /// Returns the chunks of the slices. Known slices cost a comparison. New ones cost an allocation and a synchronous
  /// copy, so they must not appear while the stream is being recorded (`recording`).
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
