/// \file
/// Rows of a table by number, and the sums that go back to them. The gradient of a table row is the sum of the rows of
/// d_y that used it: rows are sorted by (token, row) first, and each run of one token is then added by one block, so
/// that no two threads add to one place. A row finds its place in the order by counting the rows before it: work that
/// grows with the square of the rows, but in integers, without memory traffic and without a second pass.
#pragma once

#include <cstdint>

#include "model/cuda/launch.cuh"
#include "model/cuda/packs.cuh"
#include "model/cuda/sequence_kernels.hpp"
#include "model/formulas/losses.hpp"

namespace lockstep::model::cuda {

/// Body of each_element(): element i is column i % columns of row i / columns. positions may be null.
template <class T>
struct LookUp {
  const std::int32_t* tokens;
  const T *table, *positions;
  std::int64_t vocabulary, position_rows, columns;
  T* y;

  template <int kWidth>
  __device__ void at(std::int64_t i) const {
    const std::int64_t row = i / columns, column = i - row * columns;
    const std::int64_t token = tokens[row];
    float values[kWidth], more[kWidth];
    if (token >= 0 && token < vocabulary) {
      load<kWidth>(table + token * columns + column, true, values);
    } else {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) values[k] = formulas::kNan;
    }
    if (positions != nullptr) {
      load<kWidth>(positions + row % position_rows * columns + column, true, more);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) values[k] += more[k];
    }
    store<kWidth>(values, true, y + i);
  }
};

/// Runs up to here are added one row after the other.
inline constexpr std::int32_t kLongRun = 64;

template <int kWidth>
struct RunRoom {
  float of_thread[kWidth][kBlock];
};

/// d_table += the rows of d_y. A block for each sorted row, which ends at once where no run begins; block y takes the
/// columns from y * kWarp * kWidth on, a pack a lane; the warps share long runs.
template <int kWidth, class T>
__global__ void __launch_bounds__(kBlock)
    add_runs(const SortedRow* sorted, const std::int32_t* tokens, const T* d_y, std::int64_t vocabulary,
             std::int64_t columns, bool wide, bool wide_table, float* d_table) {
  constexpr std::int32_t kWarps = kBlock / kWarp;
  constexpr int kAhead = 4;  // rows that are under way together
  const std::int32_t run = sorted[blockIdx.x].run;
  if (run == 0) return;
  const std::int64_t token = tokens[sorted[blockIdx.x].row];
  if (token < 0 || token >= vocabulary) return;
  const auto warp = static_cast<std::int32_t>(threadIdx.x / kWarp);
  const bool is_long = run > kLongRun;
  if (!is_long && warp > 0) return;
  const std::int64_t column = (blockIdx.y * kWarp + threadIdx.x % kWarp) * static_cast<std::int64_t>(kWidth);
  const std::int32_t piece = is_long ? (run + kWarps - 1) / kWarps : run;
  const std::int32_t begin = warp * piece < run ? warp * piece : run;
  const std::int32_t end = begin + piece < run ? begin + piece : run;
  const SortedRow* const rows = sorted + blockIdx.x;
  float sums[kWidth] = {};
  if (column < columns) {
    std::int32_t i = begin;
    for (; i + kAhead <= end; i += kAhead) {
      float values[kAhead][kWidth];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) load<kWidth>(d_y + rows[i + a].row * columns + column, wide, values[a]);
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) sums[k] += values[a][k];
      }
    }
    for (; i < end; ++i) {
      float values[kWidth];
      load<kWidth>(d_y + rows[i].row * columns + column, wide, values);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sums[k] += values[k];
    }
  }
  if (is_long) {
    auto& all = shared<RunRoom<kWidth>>();
#pragma unroll
    for (int k = 0; k < kWidth; ++k) all.of_thread[k][threadIdx.x] = sums[k];
    __syncthreads();
    if (warp > 0) return;
    for (unsigned other = 1; other < kWarps; ++other) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sums[k] += all.of_thread[k][other * kWarp + threadIdx.x];
    }
  }
  if (column >= columns) return;
  float* const to = d_table + token * columns + column;
  float values[kWidth];
  load<kWidth>(to, wide_table, values);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) values[k] += sums[k];
  store<kWidth>(values, wide_table, to);
}

}  // namespace lockstep::model::cuda
