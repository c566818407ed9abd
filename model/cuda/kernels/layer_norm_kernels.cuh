/// \file
/// Layer norm, one warp per row. A warp that does not hold its row in registers reads it several times, after the first
/// time from the cache.
#pragma once

#include <cstdint>

#include "model/cuda/kernels/column_sums.cuh"
#include "model/cuda/kernels/launch.cuh"
#include "model/cuda/kernels/packs.cuh"
#include "model/cuda/kernels/tensor_cores.cuh"
#include "model/formulas/normalization.hpp"

namespace lockstep::model::cuda {

/// Returns the sum over the warp, with the same bits in every lane.
__device__ inline float sum_to_warp(float value) {
#pragma unroll
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kWholeWarp, value, distance);
  }
  return value;
}

/// Operands of layer_norm_forward(). residual and sum may both be null; x itself is then normalised.
template <class T>
struct NormForward {
  const T *x, *residual, *scale, *shift;
  T* sum;
  float *mean, *inverse;
  T* y;
};

/// Calls visit(column) for each of this lane's packs of a row.
template <int kWidth, class Visit>
__device__ __forceinline__ void for_packs_of_row(std::int64_t columns, const Visit& visit) {
  for (std::int64_t c = threadIdx.x % kWarp * kWidth; c < columns; c += kWarp * kWidth) visit(c);
}

/// Computes the mean from the stored sums, and the variance as the mean squared distance from it. Six blocks per
/// multiprocessor.
template <int kWidth, class T>
__global__ void __launch_bounds__(kBlock)
    normalize_rows(NormForward<T> p, std::int64_t rows, std::int64_t columns, bool wide) {
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * (kBlock / kWarp);
  const T* const source = p.residual == nullptr ? p.x : p.sum;
  const float share = 1 / static_cast<float>(columns);
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kBlock / kWarp) + threadIdx.x / kWarp; row < rows;
       row += warps) {
    const std::int64_t at = row * columns;
    float total = 0;
    for_packs_of_row<kWidth>(columns, [&](std::int64_t c) {
      float values[kWidth];
      load<kWidth>(p.x + at + c, wide, values);
      if (p.residual != nullptr) {
        float more[kWidth];
        load<kWidth>(p.residual + at + c, wide, more);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) values[k] += more[k];
        store<kWidth>(values, wide, p.sum + at + c);
        load<kWidth>(p.sum + at + c, wide, values);
      }
#pragma unroll
      for (int k = 0; k < kWidth; ++k) total += values[k];
    });
    const float mean = sum_to_warp(total) * share;
    float squares = 0;
    for_packs_of_row<kWidth>(columns, [&](std::int64_t c) {
      float values[kWidth];
      load<kWidth>(source + at + c, wide, values);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) squares += (values[k] - mean) * (values[k] - mean);
    });
    const float variance = sum_to_warp(squares) * share;
    const float inverse = 1 / sqrtf(variance + static_cast<float>(formulas::kLayerNormEpsilon));
    if (threadIdx.x % kWarp == 0) {
      p.mean[row] = mean;
      p.inverse[row] = inverse;
    }
    for_packs_of_row<kWidth>(columns, [&](std::int64_t c) {
      float values[kWidth], scale[kWidth], shift[kWidth];
      load<kWidth>(source + at + c, wide, values);
      load<kWidth>(p.scale + c, wide, scale);
      load<kWidth>(p.shift + c, wide, shift);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) values[k] = scale[k] * ((values[k] - mean) * inverse) + shift[k];
      store<kWidth>(values, wide, p.y + at + c);
    });
  }
}

/// The same for rows whose kPacks packs per lane fit registers: a lane reads all of them once, before it waits for the
/// first. All memory must be aligned for packs. Four blocks per multiprocessor, for rows of up to 768 bf16.
template <int kWidth, int kPacks, class T>
__global__ void __launch_bounds__(kBlock, kWidth* kPacks > 24 ? 2 : 4)
    normalize_rows_at_once(NormForward<T> p, std::int64_t rows, int columns) {
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * (kBlock / kWarp);
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  const auto column_of = [&](int pack) { return (pack * static_cast<int>(kWarp) + lane) * kWidth; };
  const float share = 1 / static_cast<float>(columns);
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kBlock / kWarp) + threadIdx.x / kWarp; row < rows;
       row += warps) {
    const std::int64_t at = row * columns;
    Pack<T, kWidth> x[kPacks], residual[kPacks];
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (column_of(i) >= columns) break;
      x[i] = load_pack<kWidth>(p.x + at + column_of(i), true);
      if (p.residual != nullptr) residual[i] = load_pack<kWidth>(p.residual + at + column_of(i), true);
    }
    float total = 0;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (column_of(i) >= columns) break;
      if (p.residual != nullptr) {
        float values[kWidth];
#pragma unroll
        for (int k = 0; k < kWidth; ++k) values[k] = to_float(x[i].values[k]) + to_float(residual[i].values[k]);
        round_to(values, x[i]);
        store_pack(x[i], true, p.sum + at + column_of(i));
      }
#pragma unroll
      for (int k = 0; k < kWidth; ++k) total += to_float(x[i].values[k]);
    }
    const float mean = sum_to_warp(total) * share;
    float squares = 0;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (column_of(i) >= columns) break;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const float distance = to_float(x[i].values[k]) - mean;
        squares += distance * distance;
      }
    }
    const float variance = sum_to_warp(squares) * share;
    const float inverse = 1 / sqrtf(variance + static_cast<float>(formulas::kLayerNormEpsilon));
    if (lane == 0) {
      p.mean[row] = mean;
      p.inverse[row] = inverse;
    }
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (column_of(i) >= columns) break;
      float values[kWidth], scale[kWidth], shift[kWidth];
      load<kWidth>(p.scale + column_of(i), true, scale);
      load<kWidth>(p.shift + column_of(i), true, shift);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        values[k] = scale[k] * ((to_float(x[i].values[k]) - mean) * inverse) + shift[k];
      }
      store<kWidth>(values, true, p.y + at + column_of(i));
    }
  }
}

/// Inputs of the backward pass; d_residual may be null, or d_x; d_x may be d_y.
template <class T>
struct NormBackward {
  const T *x, *scale;
  const float *mean, *inverse;
  const T *d_y, *d_residual;
  T* d_x;
};

/// d_x = inverse (g - mean(g) - n mean(g n)) + d_residual; g = d_y scale, n is the normalised input. Six blocks per
/// multiprocessor.
template <int kWidth, class T>
__global__ void __launch_bounds__(kBlock)
    normalize_rows_back(NormBackward<T> p, std::int64_t rows, std::int64_t columns, bool wide) {
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * (kBlock / kWarp);
  const float share = 1 / static_cast<float>(columns);
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kBlock / kWarp) + threadIdx.x / kWarp; row < rows;
       row += warps) {
    const std::int64_t at = row * columns;
    const float mean = p.mean[row], inverse = p.inverse[row];
    float total = 0, along = 0;
    for_packs_of_row<kWidth>(columns, [&](std::int64_t c) {
      float values[kWidth], gradients[kWidth], scale[kWidth];
      load<kWidth>(p.x + at + c, wide, values);
      load<kWidth>(p.d_y + at + c, wide, gradients);
      load<kWidth>(p.scale + c, wide, scale);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const float g = gradients[k] * scale[k];
        total += g;
        along += g * ((values[k] - mean) * inverse);
      }
    });
    total = sum_to_warp(total) * share;
    along = sum_to_warp(along) * share;
    for_packs_of_row<kWidth>(columns, [&](std::int64_t c) {
      float values[kWidth], gradients[kWidth], scale[kWidth];
      load<kWidth>(p.x + at + c, wide, values);
      load<kWidth>(p.d_y + at + c, wide, gradients);
      load<kWidth>(p.scale + c, wide, scale);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        values[k] = inverse * (gradients[k] * scale[k] - total - (values[k] - mean) * inverse * along);
      }
      if (p.d_residual != nullptr) {
        load<kWidth>(p.d_residual + at + c, wide, gradients);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) values[k] += gradients[k];
      }
      store<kWidth>(values, wide, p.d_x + at + c);
    });
  }
}

/// Prefetched values of x, d_y and d_residual of a thread; after the last row, the workspace of the sums.
template <int kWidth, int kPacks, class T>
union NormWorkspace {
  Pack<T, kWidth> ahead[3][kPacks][kBlock];
  SumWorkspace<kWidth> sums;
};

/// The same, with the sums of d_scale and d_shift, in one pass over x and d_y. A lane holds its kPacks packs of a row,
/// and the sums of their columns over the rows of its warp. Meanwhile the next row of the warp is copied to shared
/// memory. The sums of the block's warps are added in order and become part blockIdx.x. All memory must be aligned for
/// packs. Two blocks per multiprocessor, for rows of up to 768 bf16.
template <int kWidth, int kPacks, class T>
__global__ void __launch_bounds__(kBlock, kWidth* kPacks > 24 ? 1 : 2)
    normalize_rows_back_at_once(NormBackward<T> p, int rows, int columns, bool add, SumTargets<2> sums) {
  constexpr unsigned kWarps = kBlock / kWarp;
  const unsigned warp = threadIdx.x / kWarp;
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  const auto column_of = [&](int pack) { return (pack * static_cast<int>(kWarp) + lane) * kWidth; };
  const float share = 1 / static_cast<float>(columns);
  auto& workspace = shared<NormWorkspace<kWidth, kPacks, T>>();
  const auto slot = [&](int which, int pack) { return workspace.ahead[which][pack][threadIdx.x].values; };
  const auto start_copy = [&](int which, const T* from, int row) {
    static_assert(sizeof(Pack<T, kWidth>) == kWideBytes);
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (column_of(i) >= columns) break;
      copy_async(reinterpret_cast<const Bfloat16*>(from + static_cast<std::int64_t>(row) * columns + column_of(i)),
                 true, reinterpret_cast<Bfloat16*>(slot(which, i)));
    }
  };
  const auto stride = static_cast<int>(gridDim.x * kWarps);
  auto row = static_cast<int>(blockIdx.x * kWarps + warp);
  float next_mean = 0, next_inverse = 0;
  if (row < rows) {
    start_copy(0, p.x, row);
    start_copy(1, p.d_y, row);
    if (p.d_residual != nullptr) start_copy(2, p.d_residual, row);
    next_mean = p.mean[row];
    next_inverse = p.inverse[row];
  }
  end_group();
  float own[2][kPacks][kWidth] = {};
  while (row < rows) {
    const std::int64_t at = static_cast<std::int64_t>(row) * columns;
    const int next = rows - row > stride ? row + stride : rows;
    const float mean = next_mean, inverse = next_inverse;
    wait_groups<0>();
    Pack<T, kWidth> x[kPacks], d_y[kPacks];
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (column_of(i) >= columns) break;
      x[i] = load_pack<kWidth>(slot(0, i), true);
      d_y[i] = load_pack<kWidth>(slot(1, i), true);
    }
    float total = 0, along = 0;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (column_of(i) >= columns) break;
      float scale[kWidth];
      load<kWidth>(p.scale + column_of(i), true, scale);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const float n = (to_float(x[i].values[k]) - mean) * inverse, d = to_float(d_y[i].values[k]);
        own[0][i][k] += d * n;
        own[1][i][k] += d;
        total += d * scale[k];
        along += d * scale[k] * n;
      }
    }
    if (next < rows) {
      start_copy(0, p.x, next);
      start_copy(1, p.d_y, next);
      next_mean = p.mean[next];
      next_inverse = p.inverse[next];
    }
    total = sum_to_warp(total) * share;
    along = sum_to_warp(along) * share;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (column_of(i) >= columns) break;
      float scale[kWidth], values[kWidth], more[kWidth] = {};
      load<kWidth>(p.scale + column_of(i), true, scale);
      if (p.d_residual != nullptr) load<kWidth>(slot(2, i), true, more);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const float n = (to_float(x[i].values[k]) - mean) * inverse;
        values[k] = inverse * (to_float(d_y[i].values[k]) * scale[k] - total - n * along) + more[k];
      }
      store<kWidth>(values, true, p.d_x + at + column_of(i));
    }
    if (p.d_residual != nullptr && next < rows) start_copy(2, p.d_residual, next);
    end_group();
    row = next;
  }
  auto& all = workspace.sums;
#pragma unroll
  for (int s = 0; s < 2; ++s) {
    if (sums.to[s] == nullptr) continue;  // frozen
    float* const to = sums.to[s] + static_cast<std::int64_t>(blockIdx.x) * 2 * columns;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      __syncthreads();  // all threads have read the previous sums or the copied values
#pragma unroll
      for (int k = 0; k < kWidth; ++k) all.of_thread[k][threadIdx.x] = own[s][i][k];
      __syncthreads();
      if (warp > 0 || column_of(i) >= columns) continue;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        float sum = add ? to[column_of(i) + k] : 0;
        for (unsigned w = 0; w < kWarps; ++w) sum += all.of_thread[k][w * kWarp + threadIdx.x];
        to[column_of(i) + k] = sum;
      }
    }
  }
}

/// Terms of d_scale and d_shift, for sum_columns().
template <class T>
struct LayerNormColumns {
  const T* x;
  const float *mean, *inverse;
  const T* d_y;
  std::int64_t columns;
  bool wide;

  template <int kWidth>
  __device__ void at(std::int64_t row, std::int64_t column, float (&values)[2][kWidth]) const {
    load<kWidth>(x + row * columns + column, wide, values[0]);
    load<kWidth>(d_y + row * columns + column, wide, values[1]);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) values[0][k] = values[1][k] * ((values[0][k] - mean[row]) * inverse[row]);
  }
};

}  // namespace lockstep::model::cuda
