/// \file
/// Table lookup by row number, and its gradient. The gradient of a table row is the sum of the rows of d_y that read
/// it. Rows are sorted by (token, row), and one warp or one block adds each run of one token, so no two threads add to
/// the same element. Rows are sorted in chunks that fit shared memory; a binary search in each chunk then gives the
/// position of each row in the whole order.
#pragma once

#include <cstdint>

#include "model/cuda/kernels/launch.cuh"
#include "model/cuda/kernels/packs.cuh"
#include "model/cuda/kernels/sequence_kernels.hpp"
#include "model/formulas/losses.hpp"

namespace lockstep::model::cuda {

/// Operands of embedding_forward(); positions and places may be null.
template <class T>
struct LookUp {
  const std::int32_t *tokens, *places;
  const T *table, *positions;
  std::int64_t vocabulary, columns;
  unsigned position_rows;
  T* y;
};

/// One warp per row; fewer than 2^32 rows. Six blocks per multiprocessor.
template <int kWidth, class T>
__global__ void __launch_bounds__(kBlock) look_up_rows(LookUp<T> p, std::int64_t rows, bool wide) {
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * (kBlock / kWarp);
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kBlock / kWarp) + threadIdx.x / kWarp; row < rows;
       row += warps) {
    const std::int64_t token = p.tokens[row];
    const bool is_there = token >= 0 && token < p.vocabulary;
    const T* const from = p.table + (is_there ? token * p.columns : 0);
    const std::int64_t position = p.places != nullptr      ? p.places[row]
                                  : p.positions != nullptr ? static_cast<unsigned>(row) % p.position_rows
                                                           : 0;
    const T* const more = p.positions == nullptr ? nullptr : p.positions + position * p.columns;
    for (std::int64_t c = threadIdx.x % kWarp * kWidth; c < p.columns; c += kWarp * kWidth) {
      float values[kWidth], shift[kWidth] = {};
      load<kWidth>(from + c, wide, values);
      if (more != nullptr) load<kWidth>(more + c, wide, shift);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) values[k] = is_there ? values[k] + shift[k] : formulas::kNan;
      store<kWidth>(values, wide, p.y + row * p.columns + c);
    }
  }
}

/// Longest run that one warp adds row by row.
inline constexpr std::int32_t kLongRun = 64;

template <int kWidth>
struct RunWorkspace {
  float of_thread[kWidth][kBlock];
};

/// d_table += rows of d_y. One warp per sorted row, idle unless a run begins there. Block y adds the columns from y *
/// kWarp * kWidth on, one pack per lane. The warps of a block share long runs. Four blocks per multiprocessor: four
/// rows in flight per thread hide the latency.
template <int kWidth, class T>
__global__ void __launch_bounds__(kBlock)
    add_runs(const SortedRow* sorted, std::int64_t rows, const std::int32_t* tokens, const T* d_y,
             std::int64_t vocabulary, std::int64_t columns, bool wide, bool wide_table, float* d_table) {
  constexpr std::int32_t kWarps = kBlock / kWarp;
  constexpr int kAhead = 4;  // rows in flight
  static_assert(kWarps <= kLongRun, "no more than one long run begins in a block");
  const auto warp = static_cast<std::int32_t>(threadIdx.x / kWarp),
             lane = static_cast<std::int32_t>(threadIdx.x % kWarp);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kWarps;
  const std::int64_t column = (blockIdx.y * kWarp + threadIdx.x % kWarp) * static_cast<std::int64_t>(kWidth);
  const std::int32_t of_lane = lane < kWarps && first + lane < rows ? sorted[first + lane].run : 0;
  std::int32_t longest = of_lane;  // longest run that begins in this block
#pragma unroll
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
    const std::int32_t other = __shfl_xor_sync(kWholeWarp, longest, distance);
    longest = other > longest ? other : longest;
  }
  const bool is_long = longest > kLongRun;
  const std::int32_t run = __shfl_sync(kWholeWarp, of_lane, warp);
  std::int64_t start = first + warp;
  const auto sum_up = [&](std::int32_t begin, std::int32_t end, float(&sums)[kWidth]) {
    const SortedRow* const own = sorted + start;
    std::int32_t i = begin;
    for (; i + kAhead <= end; i += kAhead) {
      float values[kAhead][kWidth];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) load<kWidth>(d_y + own[i + a].row * columns + column, wide, values[a]);
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) sums[k] += values[a][k];
      }
    }
    for (; i < end; ++i) {
      float values[kWidth];
      load<kWidth>(d_y + own[i].row * columns + column, wide, values);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sums[k] += values[k];
    }
  };
  const auto add_to_table = [&](const float(&sums)[kWidth]) {
    const std::int64_t token = tokens[sorted[start].row];
    if (token < 0 || token >= vocabulary) return;
    float* const to = d_table + token * columns + column;
    float values[kWidth];
    load<kWidth>(to, wide_table, values);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) values[k] += sums[k];
    store<kWidth>(values, wide_table, to);
  };
  if (run > 0 && run <= kLongRun && column < columns) {
    float sums[kWidth] = {};
    sum_up(0, run, sums);
    add_to_table(sums);
  }
  if (!is_long) return;
  start = first;
  while (sorted[start].run != longest) ++start;
  const std::int32_t piece = (longest + kWarps - 1) / kWarps;
  const std::int32_t begin = warp * piece < longest ? warp * piece : longest;
  const std::int32_t end = begin + piece < longest ? begin + piece : longest;
  float sums[kWidth] = {};
  if (column < columns) sum_up(begin, end, sums);
  auto& all = shared<RunWorkspace<kWidth>>();
#pragma unroll
  for (int k = 0; k < kWidth; ++k) all.of_thread[k][threadIdx.x] = sums[k];
  __syncthreads();
  if (warp > 0 || column >= columns) return;
  for (unsigned other = 1; other < kWarps; ++other) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) sums[k] += all.of_thread[k][other * kWarp + threadIdx.x];
  }
  add_to_table(sums);
}

}  // namespace lockstep::model::cuda
