/// \file
/// Passes that compute each element independently.
#pragma once

#include <algorithm>
#include <cstdint>

#include "model/cuda/kernels/launch.cuh"
#include "model/cuda/kernels/packs.cuh"
#include "model/formulas/activations.hpp"
#include "model/formulas/elementwise.hpp"

namespace lockstep::model::cuda {

/// If `wide`, calls body.at<kWidth>(i) for every kWidth-th i, and body.at<1>(i) for the remaining elements at the end.
/// Otherwise calls body.at<1>(i) for all elements.
template <int kWidth, class Body>
__global__ void __launch_bounds__(kBlock) each_element(Body body, std::int64_t count, bool wide) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t packs = wide ? count / kWidth : 0;
  for (std::int64_t pack = thread; pack < packs; pack += threads) body.template at<kWidth>(pack * kWidth);
  for (std::int64_t i = packs * kWidth + thread; i < count; i += threads) body.template at<1>(i);
}

/// Largest grid: threads process one pack each up to this size, then several. It is a few dozen blocks for each
/// multiprocessor of the largest GPUs.
inline constexpr std::int64_t kMaxBlocks = 4096;

/// Enqueues each_element() over `count` elements. Does nothing for none.
template <int kWidth, class Body>
void run_each(const char* name, cudaStream_t stream, const Body& body, std::int64_t count, bool wide) {
  if (count == 0) return;
  const std::int64_t threads = wide ? (count + kWidth - 1) / kWidth : count;
  const Grid grid{.blocks = static_cast<unsigned>(std::min((threads + kBlock - 1) / kBlock, kMaxBlocks)),
                  .threads = kBlock};
  launch(name, each_element<kWidth, Body>, grid, stream, body, count, wide);
}

/// out[i] = in[i] * scale + shift
template <class In, class Out>
struct ConvertInput {
  const In* in;
  Out* out;
  float scale, shift;

  template <int kWidth>
  __device__ void at(std::int64_t i) const {
    float values[kWidth];
    load<kWidth>(in + i, true, values);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) values[k] = values[k] * scale + shift;
    store<kWidth>(values, true, out + i);
  }
};

/// out[i] = in[i], through float.
template <class In, class Out>
struct Cast {
  const In* in;
  Out* out;

  template <int kWidth>
  __device__ void at(std::int64_t i) const {
    float values[kWidth];
    load<kWidth>(in + i, true, values);
    store<kWidth>(values, true, out + i);
  }
};

/// out[i] = in[i] of any type, as bytes.
struct Copy {
  const std::uint8_t* in;
  std::uint8_t* out;

  template <int kWidth>
  __device__ void at(std::int64_t i) const {
    store_pack(load_pack<kWidth>(in + i, true), true, out + i);
  }
};

/// to[i] += x[i]
template <class T>
struct Add {
  const T* x;
  T* to;

  template <int kWidth>
  __device__ void at(std::int64_t i) const {
    float values[kWidth], sums[kWidth];
    load<kWidth>(x + i, true, values);
    load<kWidth>(to + i, true, sums);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) sums[k] += values[k];
    store<kWidth>(sums, true, to + i);
  }
};

struct DeviceExp {
  __device__ static float of(float x) { return std::exp(x); }
  __device__ static float tanh_of(float x) { return std::tanh(x); }
  __device__ static float normal_share_of(float x) {
    return std::erfc(-x * static_cast<float>(formulas::kRootOfHalf)) / 2;
  }
  __device__ static float log1p_of(float x) { return std::log1p(x); }
  __device__ static float log1p_of_share(float x) { return std::log1p(x); }
};

/// y[i] = f(x[i]); y may be x.
template <class T, Function kFunction>
struct Apply {
  const T* x;
  T* y;
  float parameter;

  template <int kWidth>
  __device__ void at(std::int64_t i) const {
    float values[kWidth];
    load<kWidth>(x + i, true, values);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) values[k] = formulas::value_of<kFunction, DeviceExp>(values[k], parameter);
    store<kWidth>(values, true, y + i);
  }
};

/// d_x[i] = d_y[i] f'; d_x may be d_y. For a function with constant slope, `read` is d_y.
template <class T, Function kFunction>
struct ApplySlope {
  const T* read;
  const T* d_y;
  T* d_x;
  float parameter;

  template <int kWidth>
  __device__ void at(std::int64_t i) const {
    float values[kWidth], gradients[kWidth];
    load<kWidth>(read + i, true, values);
    load<kWidth>(d_y + i, true, gradients);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) gradients[k] *= formulas::slope_of<kFunction, DeviceExp>(values[k], parameter);
    store<kWidth>(gradients, true, d_x + i);
  }
};

template <class T, Activation kActivation>
struct Activate {
  T* y;

  template <int kWidth>
  __device__ void at(std::int64_t i) const {
    float values[kWidth];
    load<kWidth>(y + i, true, values);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) values[k] = formulas::activate<kActivation>(values[k]);
    store<kWidth>(values, true, y + i);
  }
};

template <class T, Activation kActivation>
struct GradientBefore {
  const T* y;
  T* d_y;

  template <int kWidth>
  __device__ void at(std::int64_t i) const {
    float values[kWidth], gradients[kWidth];
    load<kWidth>(y + i, true, values);
    load<kWidth>(d_y + i, true, gradients);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) gradients[k] = formulas::gradient_before<kActivation>(values[k], gradients[k]);
    store<kWidth>(gradients, true, d_y + i);
  }
};

/// y = act(y + bias). Threads of a block are arranged in rows of 1 << column_bits; each thread holds the bias of its
/// kWidth columns and iterates over rows. Grid: tiles of columns; parts of the rows.
template <int kWidth, class T, Activation kActivation>
__global__ void __launch_bounds__(kBlock)
    add_bias_rows(T* y, const T* bias, std::int64_t rows, std::int64_t columns, int column_bits, bool wide) {
  const std::int64_t lane = threadIdx.x & ((1u << column_bits) - 1);
  const std::int64_t column = ((static_cast<std::int64_t>(blockIdx.x) << column_bits) + lane) * kWidth;
  if (column >= columns) return;
  float shift[kWidth];
  load<kWidth>(bias + column, wide, shift);
  const std::int64_t rows_of_block = blockDim.x >> column_bits;
  const std::int64_t stride = gridDim.y * rows_of_block;
  for (std::int64_t row = blockIdx.y * rows_of_block + (threadIdx.x >> column_bits); row < rows; row += stride) {
    T* const at = y + row * columns + column;
    float values[kWidth];
    load<kWidth>(at, wide, values);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) values[k] = formulas::activate<kActivation>(values[k] + shift[k]);
    store<kWidth>(values, wide, at);
  }
}

/// to[row, column] = from[row, column], or 0 beyond the extents of `from`. Threads of a block are arranged in rows of 1
/// << column_bits; each writes kWidth columns of `to`. Elements of `from` are read one by one, since its rows may be
/// unaligned.
template <int kWidth, class T>
__global__ void __launch_bounds__(kBlock)
    copy_rows_of(const T* from, std::int64_t from_rows, std::int64_t from_columns, std::int64_t rows,
                 std::int64_t columns, int column_bits, T* to) {
  const std::int64_t lane = threadIdx.x & ((1u << column_bits) - 1);
  const std::int64_t column = ((static_cast<std::int64_t>(blockIdx.x) << column_bits) + lane) * kWidth;
  if (column >= columns) return;
  const std::int64_t rows_of_block = blockDim.x >> column_bits;
  const std::int64_t stride = gridDim.y * rows_of_block;
  for (std::int64_t row = blockIdx.y * rows_of_block + (threadIdx.x >> column_bits); row < rows; row += stride) {
    Pack<T, kWidth> pack;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const bool there = row < from_rows && column + k < from_columns;
      pack.values[k] = there ? from[row * from_columns + column + k] : static_cast<T>(0.0f);
    }
    store_pack(pack, true, to + row * columns + column);
  }
}

}  // namespace lockstep::model::cuda
