/// \file
/// Divides the work of an update into chunks for blocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "model/cuda/kernels/kernels.hpp"

namespace lockstep::model::cuda {

/// Divides `slices` into chunks of at most kUpdateChunk elements, which start at multiples of kUpdateChunk from the
/// start of their slice. Empty slices have no chunks.
inline std::vector<UpdateChunk> cut_into_chunks(std::span<const UpdateSlice> slices) {
  std::vector<UpdateChunk> chunks;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const UpdateSlice& slice = slices[i];
    for (std::size_t done = 0; done < slice.count; done += kUpdateChunk) {
      const std::size_t count = std::min<std::size_t>(slice.count - done, kUpdateChunk);
      chunks.push_back({.offset = slice.offset + done,
                        .count = static_cast<std::uint32_t>(count),
                        .slice = static_cast<std::uint32_t>(i),
                        .decayed = slice.decayed ? 1u : 0u,
                        .statistic = slice.statistic ? 1u : 0u,
                        .rate_scale = slice.rate_scale});
    }
  }
  return chunks;
}

/// Returns the range of chunks of each of `slices` slices.
inline std::vector<ChunksOfSlice> chunks_by_slice(std::span<const UpdateChunk> chunks, std::size_t slices) {
  std::vector<ChunksOfSlice> all(slices);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    ChunksOfSlice& of_slice = all[chunks[i].slice];
    if (of_slice.count++ == 0) of_slice.first = static_cast<std::uint32_t>(i);
  }
  return all;
}

}  // namespace lockstep::model::cuda
