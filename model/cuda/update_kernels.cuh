/// \file
/// Passes over slices of the arenas, one block a chunk.
#pragma once

#include <cstdint>

#include "model/cuda/kernels.hpp"
#include "model/cuda/launch.cuh"
#include "model/cuda/packs.cuh"
#include "model/formulas/gate.hpp"
#include "model/formulas/update.hpp"

namespace lockstep::model::cuda {

/// Elements of a thread: 16 bytes of fp32.
inline constexpr int kUpdateWidth = 4;

/// The arenas that a rule of this kind has; the others are never touched.
struct UpdatePointers {
  float* parameters;
  const float* gradients;
  float* state1;
  float* state2;
  float* average;
  Bfloat16* shadow;
};

/// at<kWidth>(i) for every kWidth-th element of a chunk, at<1>(i) for those left. `wide`: the arenas start at multiples
/// of kUpdateWidth elements; then so do the chunks whose offset is one.
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

/// kWidth elements from `i` on.
template <OptimizerKind kKind, bool kAveraging, bool kShadow, int kWidth>
__device__ __forceinline__ void update_at(const UpdatePointers& arenas, const formulas::UpdateScalars& scalars,
                                          std::int64_t i) {
  float w[kWidth], g[kWidth], state1[kWidth] = {}, state2[kWidth] = {}, average[kWidth] = {};
  load<kWidth>(arenas.gradients + i, true, g);
  load<kWidth>(arenas.parameters + i, true, w);
  if constexpr (formulas::keeps_velocity(kKind) || formulas::keeps_moments(kKind))
    load<kWidth>(arenas.state1 + i, true, state1);
  if constexpr (formulas::keeps_moments(kKind)) load<kWidth>(arenas.state2 + i, true, state2);
  if constexpr (kAveraging) load<kWidth>(arenas.average + i, true, average);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    w[k] = formulas::updated<kKind>(scalars, w[k], g[k], state1[k], state2[k]);
    if constexpr (kAveraging) average[k] = formulas::averaged(scalars, average[k], w[k]);
  }
  store<kWidth>(w, true, arenas.parameters + i);
  if constexpr (formulas::keeps_velocity(kKind) || formulas::keeps_moments(kKind))
    store<kWidth>(state1, true, arenas.state1 + i);
  if constexpr (formulas::keeps_moments(kKind)) store<kWidth>(state2, true, arenas.state2 + i);
  if constexpr (kAveraging) store<kWidth>(average, true, arenas.average + i);
  if constexpr (kShadow) store<kWidth>(w, true, arenas.shadow + i);
}

struct UpdateOfBlock {
  formulas::UpdateScalars scalars;
  bool is_open;
};

/// Nothing is written where the gate is closed.
template <OptimizerKind kKind, bool kAveraging, bool kShadow>
__global__ void __launch_bounds__(kBlock)
    update_chunk(UpdatePointers arenas, const UpdateRule* rule, const UpdateChunk* chunks, bool wide,
                 const double* obstacles, const double* gradient_squares) {
  auto& block = shared<UpdateOfBlock>();
  const UpdateChunk chunk = chunks[blockIdx.x];
  if (threadIdx.x == 0) {
    block.is_open = formulas::may_update(*obstacles, *gradient_squares);
    block.scalars =
        formulas::update_scalars(*rule, formulas::clip_factor(*gradient_squares, rule->clip_norm), chunk.decayed != 0);
  }
  __syncthreads();
  if (!block.is_open) return;
  const formulas::UpdateScalars scalars = block.scalars;
  for_chunk(chunk, wide,
            [&]<int kWidth>(std::int64_t i) { update_at<kKind, kAveraging, kShadow, kWidth>(arenas, scalars, i); });
}

}  // namespace lockstep::model::cuda
