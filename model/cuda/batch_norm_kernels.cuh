/// \file
/// Batch normalisation. Rows are pixels of the whole batch, columns are channels.
#pragma once

#include <cstdint>

#include "model/cuda/row_passes.cuh"
#include "model/formulas/normalization.hpp"

namespace lockstep::model::cuda {

/// A pack of two double sums per thread.
template <int kWidth>
struct ColumnPairs {
  double first[kWidth][kBlock], second[kWidth][kBlock];
};

/// What follows a pair of sums that is complete: also these, where they are not null.
struct PairCopies {
  float* first;
  float* second;
  bool add;

  __device__ void write(std::int64_t column, double first_sum, double second_sum) const {
    if (first != nullptr) first[column] = (add ? first[column] : 0.0f) + static_cast<float>(first_sum);
    if (second != nullptr) second[column] = (add ? second[column] : 0.0f) + static_cast<float>(second_sum);
  }
};

/// Two double sums per column over the rows of this block, which body.at<kWidth>(kept, row, column, wide, first,
/// second) adds to. Threads stand as in each_row(), a thread's rows are added in order, then the threads' sums by
/// halving. To sums[blockIdx.y * 2 * columns + column] and `columns` further on; a grid of one part also writes the
/// copies.
template <int kWidth, class Body>
__global__ void __launch_bounds__(kBlock)
    column_pairs(Body body, std::int64_t rows, std::int64_t columns, std::int64_t rows_of_part, int column_bits,
                 bool wide, double* sums, PairCopies copies) {
  const unsigned columns_of_block = 1u << column_bits;
  const std::int64_t lane = threadIdx.x & (columns_of_block - 1);
  const std::int64_t column = ((static_cast<std::int64_t>(blockIdx.x) << column_bits) + lane) * kWidth;
  const std::int64_t begin = blockIdx.y * rows_of_part;
  const std::int64_t end = begin + rows_of_part < rows ? begin + rows_of_part : rows;
  double first[kWidth] = {}, second[kWidth] = {};
  if (column < columns) {
    const auto kept = body.template columns<kWidth>(column, wide);
    for (std::int64_t row = begin + (threadIdx.x >> column_bits); row < end; row += kBlock >> column_bits) {
      body.template at<kWidth>(kept, row * columns + column, wide, first, second);
    }
  }
  auto& all = shared<ColumnPairs<kWidth>>();
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    all.first[k][threadIdx.x] = first[k];
    all.second[k][threadIdx.x] = second[k];
  }
  __syncthreads();
  for (unsigned half = kBlock / 2; half >= columns_of_block; half /= 2) {
    if (threadIdx.x < half) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        all.first[k][threadIdx.x] += all.first[k][threadIdx.x + half];
        all.second[k][threadIdx.x] += all.second[k][threadIdx.x + half];
      }
    }
    __syncthreads();
  }
  if (threadIdx.x >= columns_of_block || column >= columns) return;
  double* const to = sums + blockIdx.y * 2 * columns + column;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    to[k] = all.first[k][threadIdx.x];
    to[columns + k] = all.second[k][threadIdx.x];
    if (gridDim.y == 1) copies.write(column + k, to[k], to[columns + k]);
  }
}

struct PairLanes {
  double first[kBlock], second[kBlock];
};

/// sums = the sums of the parts of each column, and the copies. 32 columns a block: thread t adds every eighth part of
/// column t % 32, then the eight are added.
__global__ void __launch_bounds__(kBlock)
    add_pair_parts(const double* parts, int count, std::int64_t columns, double* sums, PairCopies copies) {
  constexpr unsigned kLanes = kBlock / kWarp;
  auto& all = shared<PairLanes>();
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.x % kWarp;
  double first = 0, second = 0;
  if (column < columns) {
    for (int part = static_cast<int>(threadIdx.x / kWarp); part < count; part += kLanes) {
      first += parts[part * 2 * columns + column];
      second += parts[part * 2 * columns + columns + column];
    }
  }
  all.first[threadIdx.x] = first;
  all.second[threadIdx.x] = second;
  __syncthreads();
  if (threadIdx.x >= kWarp || column >= columns) return;
  for (unsigned lane = 1; lane < kLanes; ++lane) {
    first += all.first[lane * kWarp + threadIdx.x];
    second += all.second[lane * kWarp + threadIdx.x];
  }
  sums[column] = first;
  sums[columns + column] = second;
  copies.write(column, first, second);
}

/// x and its squares, which are exact in double.
template <class T>
struct SumForward {
  const T* x;

  template <int kWidth>
  __device__ NothingKept columns(std::int64_t, bool) const {
    return {};
  }
  template <int kWidth>
  __device__ void at(NothingKept, std::int64_t i, bool wide, double (&first)[kWidth], double (&second)[kWidth]) const {
    float values[kWidth];
    load<kWidth>(x + i, wide, values);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const auto value = static_cast<double>(values[k]);
      first[k] += value;
      second[k] += value * value;
    }
  }
};

/// Which gradients come through the relu: all, where there is none; those where y was positive, which replace d_y; or
/// those where what x makes of y is, as Normalize makes it.
enum class ReluGradient { all, of_y, recomputed };

/// Gradients before the relu, and those times x_hat. scale and shift: null unless it is recomputed; then y is.
template <class T, ReluGradient kRelu>
struct SumBackward {
  const T* x;
  const T* y;
  T* d_y;
  const float* mean;
  const float* inverse;
  const T* scale;
  const T* shift;

  template <int kWidth>
  struct Kept {
    float mean[kWidth], inverse[kWidth], gain[kWidth], shift[kWidth];
  };
  template <int kWidth>
  __device__ Kept<kWidth> columns(std::int64_t column, bool) const {
    Kept<kWidth> kept{};
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      kept.mean[k] = mean[column + k];
      kept.inverse[k] = inverse[column + k];
      if constexpr (kRelu == ReluGradient::recomputed) {
        kept.gain[k] = to_float(scale[column + k]) * inverse[column + k];
        kept.shift[k] = to_float(shift[column + k]);
      }
    }
    return kept;
  }
  template <int kWidth>
  __device__ void at(const Kept<kWidth>& kept, std::int64_t i, bool wide, double (&first)[kWidth],
                     double (&second)[kWidth]) const {
    float values[kWidth], gradients[kWidth];
    load<kWidth>(d_y + i, wide, gradients);
    if constexpr (kRelu == ReluGradient::of_y) {
      load<kWidth>(y + i, wide, values);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) gradients[k] = values[k] > 0 ? gradients[k] : 0.0f;
      store<kWidth>(gradients, wide, d_y + i);
    }
    load<kWidth>(x + i, wide, values);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      if constexpr (kRelu == ReluGradient::recomputed) {
        gradients[k] = (values[k] - kept.mean[k]) * kept.gain[k] + kept.shift[k] > 0 ? gradients[k] : 0.0f;
      }
      first[k] += static_cast<double>(gradients[k]);
      second[k] += static_cast<double>(gradients[k] * ((values[k] - kept.mean[k]) * kept.inverse[k]));
    }
  }
};

/// y = relu?(gain * (x - mean) + shift + residual)
template <int kWidth>
struct NormColumns {
  float mean[kWidth], gain[kWidth], shift[kWidth];
};

template <class T, bool kRelu>
struct Normalize {
  const T* x;
  const T* residual;  ///< may be null
  T* y;
  std::int64_t channels;

  template <int kWidth>
  __device__ __forceinline__ void write(const NormColumns<kWidth>& kept, std::uint32_t row, std::int64_t column,
                                        bool wide) const {
    const std::int64_t i = row * channels + column;
    float values[kWidth];
    load<kWidth>(x + i, wide, values);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) values[k] = (values[k] - kept.mean[k]) * kept.gain[k] + kept.shift[k];
    if (residual != nullptr) {
      float more[kWidth];
      load<kWidth>(residual + i, wide, more);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) values[k] += more[k];
    }
    if constexpr (kRelu) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) values[k] = values[k] < 0 ? 0.0f : values[k];
    }
    store<kWidth>(values, wide, y + i);
  }
};

/// With the statistics of this batch.
template <class T, bool kRelu>
struct BatchNormForward {
  Normalize<T, kRelu> normalize;
  const float* mean;
  const float* inverse;
  const T* scale;
  const T* shift;

  template <int kWidth>
  __device__ NormColumns<kWidth> columns(std::int64_t column, bool) const {
    NormColumns<kWidth> kept;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      kept.mean[k] = mean[column + k];
      kept.gain[k] = to_float(scale[column + k]) * inverse[column + k];
      kept.shift[k] = to_float(shift[column + k]);
    }
    return kept;
  }
  template <int kWidth>
  __device__ void at(const NormColumns<kWidth>& kept, std::uint32_t row, std::int64_t column, bool wide) const {
    normalize.write(kept, row, column, wide);
  }
};

/// With fixed statistics.
template <class T, bool kRelu>
struct BatchNormInference {
  Normalize<T, kRelu> normalize;
  const T* mean;
  const T* variance;
  const T* scale;
  const T* shift;
  float epsilon;

  template <int kWidth>
  __device__ NormColumns<kWidth> columns(std::int64_t column, bool) const {
    NormColumns<kWidth> kept;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      kept.mean[k] = to_float(mean[column + k]);
      kept.gain[k] = to_float(scale[column + k]) / std::sqrt(to_float(variance[column + k]) + epsilon);
      kept.shift[k] = to_float(shift[column + k]);
    }
    return kept;
  }
  template <int kWidth>
  __device__ void at(const NormColumns<kWidth>& kept, std::uint32_t row, std::int64_t column, bool wide) const {
    normalize.write(kept, row, column, wide);
  }
};

/// d_y becomes the gradient before the relu, and d_x = gain * d_y; d_x may be d_y.
template <class T, bool kRelu>
struct BatchNormInferenceBackward {
  const T* y;
  T* d_y;
  const T* variance;
  const T* scale;
  T* d_x;
  std::int64_t channels;
  float epsilon;

  template <int kWidth>
  struct Gains {
    float of[kWidth];
  };
  template <int kWidth>
  __device__ Gains<kWidth> columns(std::int64_t column, bool) const {
    Gains<kWidth> gains;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      gains.of[k] = to_float(scale[column + k]) / std::sqrt(to_float(variance[column + k]) + epsilon);
    }
    return gains;
  }
  template <int kWidth>
  __device__ void at(const Gains<kWidth>& gains, std::uint32_t row, std::int64_t column, bool wide) const {
    const std::int64_t i = row * channels + column;
    float gradients[kWidth];
    load<kWidth>(d_y + i, wide, gradients);
    if constexpr (kRelu) {
      float values[kWidth];
      load<kWidth>(y + i, wide, values);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) gradients[k] = values[k] > 0 ? gradients[k] : 0.0f;
      store<kWidth>(gradients, wide, d_y + i);
    }
#pragma unroll
    for (int k = 0; k < kWidth; ++k) gradients[k] *= gains.of[k];
    store<kWidth>(gradients, wide, d_x + i);
  }
};

/// d_x = gain * (d_y - first - (x - mean) * second): gain = scale * inverse, first = mean of d_y, second = inverse *
/// mean of d_y * x_hat. shift: where the relu is recomputed.
template <class T, bool kRecomputed>
struct BatchNormBackward {
  const T* x;
  const T* d_y;
  const float* mean;
  const float* inverse;
  const T* scale;
  const T* shift;
  const double* forward_sums;
  const double* sums;
  T* d_x;
  std::int64_t channels;

  template <int kWidth>
  struct Kept {
    float mean[kWidth], gain[kWidth], first[kWidth], second[kWidth], shift[kWidth];
  };
  template <int kWidth>
  __device__ Kept<kWidth> columns(std::int64_t column, bool) const {
    Kept<kWidth> kept{};
    const double share = 1 / forward_sums[2 * channels];
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const float deviation = inverse[column + k];
      kept.mean[k] = mean[column + k];
      kept.gain[k] = to_float(scale[column + k]) * deviation;
      kept.first[k] = static_cast<float>(sums[column + k] * share);
      kept.second[k] = static_cast<float>(sums[channels + column + k] * share) * deviation;
      if constexpr (kRecomputed) kept.shift[k] = to_float(shift[column + k]);
    }
    return kept;
  }
  template <int kWidth>
  __device__ void at(const Kept<kWidth>& kept, std::uint32_t row, std::int64_t column, bool wide) const {
    const std::int64_t i = row * channels + column;
    float values[kWidth], gradients[kWidth];
    load<kWidth>(x + i, wide, values);
    load<kWidth>(d_y + i, wide, gradients);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      if constexpr (kRecomputed) {
        gradients[k] = (values[k] - kept.mean[k]) * kept.gain[k] + kept.shift[k] > 0 ? gradients[k] : 0.0f;
      }
      gradients[k] = kept.gain[k] * (gradients[k] - kept.first[k] - (values[k] - kept.mean[k]) * kept.second[k]);
    }
    store<kWidth>(gradients, wide, d_x + i);
  }
};

}  // namespace lockstep::model::cuda
