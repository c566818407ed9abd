/// \file
/// Sums over an array and over the rows of a matrix.
#pragma once

#include <cstdint>

#include "model/cuda/kernels/block_sums.cuh"
#include "model/cuda/kernels/launch.cuh"
#include "model/cuda/kernels/packs.cuh"
#include "model/formulas/activations.hpp"

namespace lockstep::model::cuda {

/// Packs that a thread has in flight together if it stores nothing meanwhile.
inline constexpr int kPacksAhead = 4;

/// Computes squares and sums in double. A grid of one block writes or adds the sum to `out`; in others each block
/// writes one part to `parts`.
template <int kWidth, class T>
__global__ void __launch_bounds__(kBlock)
    square_parts(const T* x, std::int64_t count, bool wide, bool add, Sums* parts, double* out) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t packs = count / kWidth;
  double sums[kWidth] = {};
  float values[kWidth];
  std::int64_t pack = thread;
  for (; wide && pack + (kPacksAhead - 1) * threads < packs; pack += kPacksAhead * threads) {
    Pack<T, kWidth> ahead[kPacksAhead];
#pragma unroll
    for (int a = 0; a < kPacksAhead; ++a) ahead[a] = load_pack<kWidth>(x + (pack + a * threads) * kWidth, true);
#pragma unroll
    for (int a = 0; a < kPacksAhead; ++a) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const auto value = static_cast<double>(to_float(ahead[a].values[k]));
        sums[k] += value * value;
      }
    }
  }
  for (; pack < packs; pack += threads) {
    load<kWidth>(x + pack * kWidth, wide, values);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) sums[k] += static_cast<double>(values[k]) * static_cast<double>(values[k]);
  }
  const std::int64_t rest = packs * kWidth + thread;
  Sums sum;
  if (rest < count) {
    const auto value = static_cast<double>(to_float(x[rest]));
    sum.loss = value * value;
  }
#pragma unroll
  for (int k = 0; k < kWidth; ++k) sum.loss += sums[k];
  const Sums total = sum_of_block(sum, shared<WarpSums>());
  if (threadIdx.x != 0) return;
  if (gridDim.x == 1) {
    *out = add ? *out + total.loss : total.loss;
  } else {
    parts[blockIdx.x] = total;
  }
}

/// Workspace: one pack of column sums per thread.
template <int kWidth>
struct ColumnSums {
  float of_thread[kWidth][kBlock];
};

/// d_y becomes the gradient before the activation. Its column sums over the rows of this block go to sums[blockIdx.y *
/// columns + column]; in a grid of one part with `add` they are added to the existing values. Threads are arranged as
/// in add_bias_rows(); block y processes the rows from y * rows_of_part on. Without an activation a thread has four
/// rows in flight. Six blocks per multiprocessor.
template <int kWidth, class T, Activation kActivation>
__global__ void __launch_bounds__(kBlock, kActivation == Activation::none ? 6 : 1)
    gradient_columns(const T* y, T* d_y, std::int64_t rows, std::int64_t columns, std::int64_t rows_of_part,
                     int column_bits, bool wide, bool add, float* sums) {
  const unsigned columns_of_block = 1u << column_bits;
  const std::int64_t lane = threadIdx.x & (columns_of_block - 1);
  const std::int64_t column = ((static_cast<std::int64_t>(blockIdx.x) << column_bits) + lane) * kWidth;
  const std::int64_t begin = blockIdx.y * rows_of_part;
  const std::int64_t end = begin + rows_of_part < rows ? begin + rows_of_part : rows;
  float own[kWidth] = {};
  if (column < columns) {
    const std::int64_t step = kBlock >> column_bits;
    std::int64_t row = begin + (threadIdx.x >> column_bits);
    if constexpr (kActivation == Activation::none) {
      const T* from = d_y + row * columns + column;
      for (; wide && row + (kPacksAhead - 1) * step < end; row += kPacksAhead * step) {
        Pack<T, kWidth> ahead[kPacksAhead];
#pragma unroll
        for (int a = 0; a < kPacksAhead; ++a, from += step * columns) ahead[a] = load_pack<kWidth>(from, true);
#pragma unroll
        for (int a = 0; a < kPacksAhead; ++a) {
#pragma unroll
          for (int k = 0; k < kWidth; ++k) own[k] += to_float(ahead[a].values[k]);
        }
      }
    }
    for (; row < end; row += step) {
      const std::int64_t at = row * columns + column;
      float gradients[kWidth];
      load<kWidth>(d_y + at, wide, gradients);
      if constexpr (kActivation != Activation::none) {
        float values[kWidth];
        load<kWidth>(y + at, wide, values);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) gradients[k] = formulas::gradient_before<kActivation>(values[k], gradients[k]);
        store<kWidth>(gradients, wide, d_y + at);
      }
#pragma unroll
      for (int k = 0; k < kWidth; ++k) own[k] += gradients[k];
    }
  }
  auto& all = shared<ColumnSums<kWidth>>();
#pragma unroll
  for (int k = 0; k < kWidth; ++k) all.of_thread[k][threadIdx.x] = own[k];
  __syncthreads();
  for (unsigned half = kBlock / 2; half >= columns_of_block; half /= 2) {
    if (threadIdx.x < half) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) all.of_thread[k][threadIdx.x] += all.of_thread[k][threadIdx.x + half];
    }
    __syncthreads();
  }
  if (threadIdx.x >= columns_of_block || column >= columns) return;
  float* const to = sums + blockIdx.y * columns + column;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    const float sum = all.of_thread[k][threadIdx.x];
    to[k] = add ? to[k] + sum : sum;
  }
}

}  // namespace lockstep::model::cuda
