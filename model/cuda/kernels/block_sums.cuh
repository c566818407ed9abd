/// \file
/// Sums in a fixed order: threads add their own elements, warps and then blocks add the sums of their threads, each
/// block writes one part, and a second, small kernel adds the parts. The elements of a thread and their order depend on
/// the sizes alone: if memory is not aligned for wide accesses, the same thread reads the same elements one by one.
#pragma once

#include <algorithm>
#include <cstdint>

#include "model/backend.hpp"
#include "model/cuda/kernels/launch.cuh"
#include "model/cuda/kernels/packs.cuh"

namespace lockstep::model::cuda {

/// Sums of a loss, or one or two sums in the first members.
using Sums = LossSums;

__device__ inline void add(Sums& sums, const Sums& more) {
  sums.loss += more.loss;
  sums.metric += more.metric;
  sums.found += more.found;
}

/// Returns the sum over the warp, in lane 0.
__device__ inline Sums sum_of_warp(Sums sums) {
#pragma unroll
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
    Sums other;
    other.loss = __shfl_down_sync(kWholeWarp, sums.loss, distance);
    other.metric = __shfl_down_sync(kWholeWarp, sums.metric, distance);
    other.found = __shfl_down_sync(kWholeWarp, sums.found, distance);
    add(sums, other);
  }
  return sums;
}

struct WarpSums {
  Sums of_warp[kBlock / kWarp];
};
/// Returns the sum over the block, in thread 0. All kBlock threads must call it, once.
__device__ inline Sums sum_of_block(Sums sums, WarpSums& warps) {
  sums = sum_of_warp(sums);
  if (threadIdx.x % kWarp == 0) warps.of_warp[threadIdx.x / kWarp] = sums;
  __syncthreads();
  Sums total;
  if (threadIdx.x == 0) {
    for (const Sums& of_warp : warps.of_warp) add(total, of_warp);
  }
  return total;
}

/// Returns the sum of `count` parts, in thread 0 of the only block.
__device__ inline Sums sum_of_parts(const Sums* parts, int count, WarpSums& warps) {
  Sums sum;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kBlock) add(sum, parts[i]);
  return sum_of_block(sum, warps);
}

/// Largest number of blocks, and thus of parts for the second kernel.
inline constexpr unsigned kMaxParts = 1024;

/// Returns the blocks of a sum over `packs` packs. A thread adds at least 4. A single block adds up to 16 per thread,
/// which is faster than a second kernel.
inline unsigned blocks_of_sum(std::int64_t packs) {
  if (packs <= 16 * kBlock) return 1;
  return static_cast<unsigned>(std::min<std::int64_t>((packs + 4 * kBlock - 1) / (4 * kBlock), kMaxParts));
}

}  // namespace lockstep::model::cuda
