/// \file
/// Passes over slices of the arenas, one block per chunk. Rules that use norms need two more passes before the update:
/// - Pass 1: each block writes the sums of squares of its chunk to its own part. For lamb it also overwrites the
///   gradients with the direction.
/// - Pass 2: a block per slice adds the parts of its chunks to UpdateArenas::norms, in a fixed order, and computes the
///   ratio of the slice.
/// - Pass 3 is the update; each block reads the ratio of its slice.
#pragma once

#include <cstdint>

#include "model/cuda/kernels/block_sums.cuh"
#include "model/cuda/kernels/kernels.hpp"
#include "model/cuda/kernels/launch.cuh"
#include "model/cuda/kernels/packs.cuh"
#include "model/formulas/gate.hpp"
#include "model/formulas/update.hpp"

namespace lockstep::model::cuda {

/// Elements of a thread: 16 bytes of fp32.
inline constexpr int kUpdateWidth = 4;

/// Arenas of an update. Those that the rule does not have are never accessed.
struct UpdatePointers {
  float* parameters;
  float* gradients;
  float* state1;
  float* state2;
  float* average;
  Bfloat16* compute_copy;
  const float* ratios;  ///< ratios of the slices
};

/// Calls at<kUpdateWidth>(i) for every kUpdateWidth-th element of a chunk, and at<1>(i) for the remaining ones. wide:
/// the arenas are aligned to kUpdateWidth elements. Chunks whose offset is not a multiple of kUpdateWidth use at<1>()
/// alone.
template <class At>
__device__ __forceinline__ void for_chunk(const UpdateChunk& chunk, bool wide, const At& at) {
  const auto begin = static_cast<std::int64_t>(chunk.offset);
  const std::int64_t end = begin + chunk.count;
  const std::int64_t packs = wide && chunk.offset % kUpdateWidth == 0 ? chunk.count / kUpdateWidth : 0;
  for (std::int64_t pack = threadIdx.x; pack < packs; pack += kBlock) {
    at.template operator()<kUpdateWidth>(begin + pack * kUpdateWidth);
  }
  for (std::int64_t i = begin + packs * kUpdateWidth + threadIdx.x; i < end; i += kBlock) at.template operator()<1>(i);
}

/// True if the update itself changes this state. For lamb, the first pass has already done so.
__device__ constexpr bool updates_state1(OptimizerKind kind) {
  return formulas::keeps_velocity(kind) || (formulas::keeps_moments(kind) && kind != OptimizerKind::lamb);
}
__device__ constexpr bool updates_state2(OptimizerKind kind) {
  return formulas::keeps_moments(kind) && kind != OptimizerKind::lamb;
}

/// Updates kWidth elements from `i` on.
template <OptimizerKind kKind, bool kAveraging, bool kShadow, int kWidth>
__device__ __forceinline__ void update_at(const UpdatePointers& arenas, const formulas::UpdateScalars& scalars,
                                          std::int64_t i) {
  float w[kWidth], g[kWidth], state1[kWidth] = {}, state2[kWidth] = {}, average[kWidth] = {};
  load<kWidth>(arenas.gradients + i, true, g);
  load<kWidth>(arenas.parameters + i, true, w);
  if constexpr (updates_state1(kKind)) load<kWidth>(arenas.state1 + i, true, state1);
  if constexpr (updates_state2(kKind)) load<kWidth>(arenas.state2 + i, true, state2);
  if constexpr (kAveraging) load<kWidth>(arenas.average + i, true, average);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    w[k] = formulas::updated<kKind>(scalars, w[k], g[k], state1[k], state2[k]);
    if constexpr (kAveraging) average[k] = formulas::averaged(scalars, average[k], w[k]);
  }
  store<kWidth>(w, true, arenas.parameters + i);
  if constexpr (updates_state1(kKind)) store<kWidth>(state1, true, arenas.state1 + i);
  if constexpr (updates_state2(kKind)) store<kWidth>(state2, true, arenas.state2 + i);
  if constexpr (kAveraging) store<kWidth>(average, true, arenas.average + i);
  if constexpr (kShadow) store<kWidth>(w, true, arenas.compute_copy + i);
}

template <bool kAveraging, bool kShadow, int kWidth>
__device__ __forceinline__ void update_statistic_at(const UpdatePointers& arenas, const UpdateRule& rule,
                                                    std::int64_t i) {
  float w[kWidth], g[kWidth];
  load<kWidth>(arenas.gradients + i, true, g);
  load<kWidth>(arenas.parameters + i, true, w);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) w[k] = formulas::updated_statistic(rule, w[k], g[k]);
  store<kWidth>(w, true, arenas.parameters + i);
  if constexpr (kAveraging) store<kWidth>(w, true, arenas.average + i);
  if constexpr (kShadow) store<kWidth>(w, true, arenas.compute_copy + i);
}

/// Values that thread 0 computes for the block.
struct UpdateOfBlock {
  formulas::UpdateScalars scalars;
  bool is_open;
};

__device__ inline void open_update(UpdateOfBlock& block, OptimizerKind kind, const UpdateRule& rule,
                                   const UpdateChunk& chunk, double non_finite, double gradient_squares) {
  block.is_open = formulas::may_update(non_finite, gradient_squares);
  block.scalars = formulas::update_scalars(kind, rule, formulas::clip_factor(gradient_squares, rule.clip_norm),
                                           chunk.decayed != 0, chunk.rate_scale);
}

struct NormsOfBlock {
  UpdateOfBlock update;
  WarpSums warps;
};

/// The first pass: writes parts[2 * chunk] and parts[2 * chunk + 1] of decayed chunks. If the gate forbids the update,
/// lamb writes nothing, and the norms are not used.
template <OptimizerKind kKind>
__global__ void __launch_bounds__(kBlock)
    square_chunk(UpdatePointers arenas, const UpdateRule* rule, const UpdateChunk* chunks, bool wide,
                 const double* non_finite, const double* gradient_squares, double* parts) {
  auto& block = shared<NormsOfBlock>();
  const UpdateChunk chunk = chunks[blockIdx.x];
  if (chunk.statistic != 0 || (kKind == OptimizerKind::lars && chunk.decayed == 0)) return;
  if (threadIdx.x == 0) open_update(block.update, kKind, *rule, chunk, *non_finite, *gradient_squares);
  __syncthreads();
  if (!block.update.is_open) {
    if (threadIdx.x < 2) parts[2 * blockIdx.x + threadIdx.x] = 0;
    return;
  }
  const formulas::UpdateScalars scalars = block.update.scalars;
  Sums sum;  // sums over weights, and over gradients or directions
  for_chunk(chunk, wide, [&]<int kWidth>(std::int64_t i) {
    float w[kWidth], g[kWidth];
    [[maybe_unused]] float state1[kWidth], state2[kWidth];
    load<kWidth>(arenas.parameters + i, true, w);
    load<kWidth>(arenas.gradients + i, true, g);
    if constexpr (kKind == OptimizerKind::lamb) {
      load<kWidth>(arenas.state1 + i, true, state1);
      load<kWidth>(arenas.state2 + i, true, state2);
    }
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      if constexpr (kKind == OptimizerKind::lamb) {
        g[k] = formulas::lamb_direction(scalars, w[k], g[k], state1[k], state2[k]);
      } else {
        g[k] = formulas::clipped(scalars, g[k]);
      }
      sum.loss += static_cast<double>(w[k]) * static_cast<double>(w[k]);
      sum.metric += static_cast<double>(g[k]) * static_cast<double>(g[k]);
    }
    if constexpr (kKind == OptimizerKind::lamb) {
      store<kWidth>(g, true, arenas.gradients + i);
      store<kWidth>(state1, true, arenas.state1 + i);
      store<kWidth>(state2, true, arenas.state2 + i);
    }
  });
  if (chunk.decayed == 0) return;
  const Sums total = sum_of_block(sum, block.warps);
  if (threadIdx.x != 0) return;
  parts[2 * blockIdx.x] = total.loss;
  parts[2 * blockIdx.x + 1] = total.metric;
}

/// Writes nothing if the gate forbids the update. Four blocks per multiprocessor.
template <OptimizerKind kKind, bool kAveraging, bool kShadow>
__global__ void __launch_bounds__(kBlock)
    update_chunk(UpdatePointers arenas, const UpdateRule* rule, const UpdateChunk* chunks, bool wide,
                 const double* non_finite, const double* gradient_squares) {
  auto& block = shared<UpdateOfBlock>();
  const UpdateChunk chunk = chunks[blockIdx.x];
  if (threadIdx.x == 0) {
    open_update(block, kKind, *rule, chunk, *non_finite, *gradient_squares);
    if constexpr (formulas::needs_norms(kKind)) {
      block.scalars = formulas::with_ratio(block.scalars, arenas.ratios[chunk.slice]);
    }
  }
  __syncthreads();
  if (!block.is_open) return;
  if (chunk.statistic != 0) {
    const UpdateRule numbers = *rule;
    return for_chunk(chunk, wide, [&]<int kWidth>(std::int64_t i) {
      update_statistic_at<kAveraging, kShadow, kWidth>(arenas, numbers, i);
    });
  }
  const formulas::UpdateScalars scalars = block.scalars;
  for_chunk(chunk, wide,
            [&]<int kWidth>(std::int64_t i) { update_at<kKind, kAveraging, kShadow, kWidth>(arenas, scalars, i); });
}

}  // namespace lockstep::model::cuda
