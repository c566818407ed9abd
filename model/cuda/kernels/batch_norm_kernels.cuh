/// \file
/// Batch normalisation. Rows are pixels of the whole batch, columns are channels.
///
/// The passes move all activations of the network and compute little, so memory bandwidth limits them. The grid has as
/// many blocks as a GPU with 132 multiprocessors holds at once. Each block processes many rows, and a thread has the
/// loads of several rows in flight before it uses the first. Values of a column are computed once per block.
///
/// Sums run from the last row to the first, and the passes after them from the first to the last. So each pass finds in
/// the L2 cache the rows that the previous pass touched last.
#pragma once

#include <algorithm>
#include <cstdint>

#include "model/cuda/kernels/row_passes.cuh"
#include "model/formulas/normalization.hpp"

namespace lockstep::model::cuda {

inline constexpr unsigned kNormResidents = 3;                      ///< blocks per multiprocessor
inline constexpr std::int64_t kNormBlocks = 132 * kNormResidents;  ///< approximate number of blocks of a grid
inline constexpr std::int64_t kMaxNormColumns = kMaxTileColumns;   ///< columns of a block
static_assert(kMaxNormColumns <= kBlock, "a thread for each column");

/// Assigns rows to the blocks of a grid: block (tile, part) processes every parts-th group of rows.
inline Tiling norm_tiling(std::int64_t rows, std::int64_t columns, int width, std::int64_t rows_of_thread) {
  Tiling tiling = tiling_of(rows, columns, width, kBlock);
  const std::int64_t rows_of_part = (kBlock >> tiling.column_bits) * rows_of_thread;
  const std::int64_t most_parts = std::max<std::int64_t>(kNormBlocks / std::max(tiling.tiles, 1u), 1);
  tiling.rows_of_part = rows_of_part;
  tiling.parts =
      static_cast<unsigned>(std::clamp<std::int64_t>((rows + rows_of_part - 1) / rows_of_part, 1, most_parts));
  return tiling;
}

/// Coefficients of a block's columns.
template <int kCoefficients>
struct ColumnCoefficients {
  float of[kCoefficients][kMaxNormColumns];
};

/// Fills `all` with body.coefficients(column, write, to[kCoefficients]) for the block's columns; `write` is true in
/// exactly one of the blocks with this column.
template <class Body>
__device__ __forceinline__ void make_coefficients(const Body& body, std::int64_t first, std::int64_t columns,
                                                  unsigned count, ColumnCoefficients<Body::kCoefficients>& all) {
  const std::int64_t column = first + threadIdx.x;
  if (threadIdx.x < count && column < columns) {
    float made[Body::kCoefficients];
    body.coefficients(column, blockIdx.y == 0, made);
#pragma unroll
    for (int c = 0; c < Body::kCoefficients; ++c) all.of[c][threadIdx.x] = made[c];
  }
  __syncthreads();
}

/// Coefficients of a thread's columns.
template <int kCoefficients, int kWidth>
__device__ __forceinline__ void load_coefficients(const ColumnCoefficients<kCoefficients>& all, std::int64_t lane,
                                                  float (&kept)[kCoefficients][kWidth]) {
#pragma unroll
  for (int c = 0; c < kCoefficients; ++c) load<kWidth>(all.of[c] + lane * kWidth, true, kept[c]);
}

/// Rows of a thread whose loads are in flight at once.
template <class Body, bool kWide>
inline constexpr int kRowsAtOnce = kWide ? Body::kRows : 1;

/// Elements of some rows.
template <class Body, int kWidth, int kRows>
struct RowInputs {
  Words<typename Body::Element, kWidth> of[kRows][Body::kInputs];
};

template <int kWidth, bool kWide, class Body>
__device__ __forceinline__ void write_rows(const Body& body, const float (&kept)[Body::kCoefficients][kWidth],
                                           std::int64_t first, std::int64_t step, std::int64_t rows,
                                           std::int64_t columns, std::int64_t column) {
  constexpr int kRows = kRowsAtOnce<Body, kWide>;
  for (std::int64_t row = first; row < rows; row += kRows * step) {
    RowInputs<Body, kWidth, kRows> inputs{};
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (row + r * step < rows) body.template read<kWidth>((row + r * step) * columns + column, kWide, inputs.of[r]);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (row + r * step < rows) {
        body.template write<kWidth>(kept, inputs.of[r], (row + r * step) * columns + column, kWide);
      }
    }
  }
}

/// Calls body.read<kWidth>(i, wide, inputs) and body.write<kWidth>(kept, inputs, i, wide) for each row. Threads are
/// arranged as in each_row().
template <int kWidth, class Body>
__global__ void __launch_bounds__(kBlock, kNormResidents)
    norm_rows(Body body, std::int64_t rows, std::int64_t columns, int column_bits, bool wide) {
  const std::int64_t lane = threadIdx.x & ((1u << column_bits) - 1);
  const std::int64_t first_column = (static_cast<std::int64_t>(blockIdx.x) << column_bits) * kWidth;
  const std::int64_t column = first_column + lane * kWidth;
  auto& coefficients = shared<ColumnCoefficients<Body::kCoefficients>>();
  make_coefficients(body, first_column, columns, kWidth << column_bits, coefficients);
  if (column >= columns) return;
  float kept[Body::kCoefficients][kWidth];
  load_coefficients(coefficients, lane, kept);
  const std::int64_t rows_of_block = kBlock >> column_bits;
  const std::int64_t first = blockIdx.y * rows_of_block + (threadIdx.x >> column_bits);
  if (wide) {
    write_rows<kWidth, true>(body, kept, first, gridDim.y * rows_of_block, rows, columns, column);
  } else {
    write_rows<kWidth, false>(body, kept, first, gridDim.y * rows_of_block, rows, columns, column);
  }
}

/// Further destinations of a complete pair of sums; null pointers are skipped.
struct PairCopies {
  float* first = nullptr;
  float* second = nullptr;
  bool add = false;
  double* count = nullptr;  ///< receives the number of rows

  __device__ void write(std::int64_t column, double first_sum, double second_sum, std::int64_t rows) const {
    if (first != nullptr) first[column] = (add ? first[column] : 0.0f) + static_cast<float>(first_sum);
    if (second != nullptr) second[column] = (add ? second[column] : 0.0f) + static_cast<float>(second_sum);
    if (count != nullptr && column == 0) *count = static_cast<double>(rows);
  }
};

/// A pack of two double sums per thread, and the coefficients of the columns.
template <class Body, int kWidth>
struct ColumnPairs {
  double first[kWidth][kBlock], second[kWidth][kBlock];
  ColumnCoefficients<Body::kCoefficients> coefficients;
};

/// Adds the rows first, first + step, ..., from the last one down, to the sums in the thread's part of `all`, in this
/// order. A body whose terms are rounded to float anyway adds runs of kRunRows rows in float.
inline constexpr int kRunRows = 8;

template <int kWidth, bool kWide, class Body>
__device__ __forceinline__ void add_rows(const Body& body, const float (&kept)[Body::kCoefficients][kWidth],
                                         std::int64_t first, std::int64_t step, std::int64_t rows, std::int64_t columns,
                                         std::int64_t column, ColumnPairs<Body, kWidth>& all) {
  using Sum = typename Body::Sum;
  constexpr int kRows = kRowsAtOnce<Body, kWide>;
  constexpr bool kInRuns = sizeof(Sum) < sizeof(double);
  Sum sums[2][kWidth] = {};
  const auto keep = [&] {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      all.first[k][threadIdx.x] += static_cast<double>(sums[0][k]);
      all.second[k][threadIdx.x] += static_cast<double>(sums[1][k]);
      sums[0][k] = sums[1][k] = 0;
    }
  };
  int of_run = 0;
  for (std::int64_t row = first; row < rows; row += kRows * step) {
    RowInputs<Body, kWidth, kRows> inputs{};
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t here = row + r * step;
      if (here < rows) body.template read<kWidth>((rows - 1 - here) * columns + column, kWide, inputs.of[r]);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t here = row + r * step;
      if (here < rows) {
        body.template add<kWidth>(kept, inputs.of[r], (rows - 1 - here) * columns + column, kWide, sums);
      }
    }
    of_run += kRows;
    if (kInRuns && of_run >= kRunRows) {
      keep();
      of_run = 0;
    }
  }
  keep();
}

/// Computes two double sums per column over the rows of this block, by body.read<kWidth>(i, wide, inputs) and
/// body.add<kWidth>(kept, inputs, i, wide, sums). Threads are arranged as in each_row(). A thread adds its rows in
/// order; then the sums of threads are added by halving. Results go to sums[blockIdx.y * 2 * columns + column] and, for
/// the second sum, `columns` further on. A grid with one part also writes the copies.
template <int kWidth, class Body>
__global__ void __launch_bounds__(kBlock, kNormResidents)
    column_pairs(Body body, std::int64_t rows, std::int64_t columns, int column_bits, bool wide, double* sums,
                 PairCopies copies) {
  const unsigned columns_of_block = 1u << column_bits;
  const std::int64_t lane = threadIdx.x & (columns_of_block - 1);
  const std::int64_t first_column = (static_cast<std::int64_t>(blockIdx.x) << column_bits) * kWidth;
  const std::int64_t column = first_column + lane * kWidth;
  auto& all = shared<ColumnPairs<Body, kWidth>>();
#pragma unroll
  for (int k = 0; k < kWidth; ++k) all.first[k][threadIdx.x] = all.second[k][threadIdx.x] = 0;
  make_coefficients(body, first_column, columns, kWidth << column_bits, all.coefficients);
  if (column < columns) {
    float kept[Body::kCoefficients][kWidth];
    load_coefficients(all.coefficients, lane, kept);
    const std::int64_t rows_of_block = kBlock >> column_bits, step = gridDim.y * rows_of_block;
    const std::int64_t first = blockIdx.y * rows_of_block + (threadIdx.x >> column_bits);
    if (wide) {
      add_rows<kWidth, true>(body, kept, first, step, rows, columns, column, all);
    } else {
      add_rows<kWidth, false>(body, kept, first, step, rows, columns, column, all);
    }
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
    to[columns + k] = body.second_sum(column + k, all.second[k][threadIdx.x]);
    if (gridDim.y == 1) copies.write(column + k, to[k], to[columns + k], rows);
  }
}

/// Columns per block of add_pair_parts().
inline constexpr unsigned kPairColumns = 8;

struct PairLanes {
  double first[kBlock], second[kBlock];
};

/// Adds the parts of each column to `sums`, and writes the copies. Eight columns per block: thread t adds every 32nd
/// part of column t % 8, eight at a time; then the 32 sums are added by halving.
__global__ void __launch_bounds__(kBlock) add_pair_parts(const double* parts, int count, std::int64_t columns,
                                                         std::int64_t rows, double* sums, PairCopies copies) {
  constexpr int kLanes = kBlock / kPairColumns, kAtOnce = 8;
  auto& all = shared<PairLanes>();
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kPairColumns + threadIdx.x % kPairColumns;
  double first = 0, second = 0;
  if (column < columns) {
    for (int part = static_cast<int>(threadIdx.x / kPairColumns); part < count; part += kAtOnce * kLanes) {
      double more[2][kAtOnce] = {};
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (part + i * kLanes >= count) continue;
        const double* const from = parts + (part + i * kLanes) * 2 * columns + column;
        more[0][i] = from[0];
        more[1][i] = from[columns];
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        first += more[0][i];
        second += more[1][i];
      }
    }
  }
  all.first[threadIdx.x] = first;
  all.second[threadIdx.x] = second;
  __syncthreads();
  for (unsigned half = kBlock / 2; half >= kPairColumns; half /= 2) {
    if (threadIdx.x < half) {
      all.first[threadIdx.x] += all.first[threadIdx.x + half];
      all.second[threadIdx.x] += all.second[threadIdx.x + half];
    }
    __syncthreads();
  }
  if (threadIdx.x >= kPairColumns || column >= columns) return;
  sums[column] = all.first[threadIdx.x];
  sums[columns + column] = all.second[threadIdx.x];
  copies.write(column, all.first[threadIdx.x], all.second[threadIdx.x], rows);
}

/// Sums of x and of its squares; the squares are exact in double.
template <class T>
struct SumForward {
  using Element = T;
  using Sum = double;
  static constexpr int kCoefficients = 1, kInputs = 1, kRows = 4;
  const T* x;

  __device__ void coefficients(std::int64_t, bool, float (&to)[kCoefficients]) const { to[0] = 0; }
  __device__ double second_sum(std::int64_t, double sum) const { return sum; }
  template <int kWidth>
  __device__ void read(std::int64_t i, bool wide, Words<T, kWidth> (&inputs)[kInputs]) const {
    inputs[0] = load_words<kWidth>(x + i, wide);
  }
  template <int kWidth>
  __device__ void add(const float (&)[kCoefficients][kWidth], const Words<T, kWidth> (&inputs)[kInputs], std::int64_t,
                      bool, double (&sums)[2][kWidth]) const {
    float values[kWidth];
    unpack(inputs[0], values);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const auto value = static_cast<double>(values[k]);
      sums[0][k] += value;
      sums[1][k] += value * value;
    }
  }
};

/// Selects the gradients that pass the relu. none: all. of_y: those with positive y; d_y is overwritten. recomputed:
/// those with positive y, which is recomputed from x as in Normalize.
enum class ReluGradient { all, of_y, recomputed };

/// Sums of the gradients before the relu, and of these times x_hat. If y is recomputed, y is null; otherwise scale and
/// shift are null.
template <class T, ReluGradient kRelu>
struct SumBackward {
  using Element = T;
  using Sum = float;
  static constexpr int kCoefficients = kRelu == ReluGradient::recomputed ? 3 : 1;
  static constexpr int kInputs = kRelu == ReluGradient::of_y ? 3 : 2, kRows = 2;
  const T* x;
  const T* y;
  T* d_y;
  const float* mean;
  const float* inverse;
  const T* scale;
  const T* shift;

  __device__ void coefficients(std::int64_t column, bool, float (&to)[kCoefficients]) const {
    to[0] = mean[column];
    if constexpr (kRelu == ReluGradient::recomputed) {
      to[1] = to_float(scale[column]) * inverse[column];
      to[2] = to_float(shift[column]);
    }
  }
  /// x_hat is (x - mean) * inverse.
  __device__ double second_sum(std::int64_t column, double sum) const {
    return sum * static_cast<double>(inverse[column]);
  }
  template <int kWidth>
  __device__ void read(std::int64_t i, bool wide, Words<T, kWidth> (&inputs)[kInputs]) const {
    inputs[0] = load_words<kWidth>(d_y + i, wide);
    inputs[1] = load_words<kWidth>(x + i, wide);
    if constexpr (kRelu == ReluGradient::of_y) inputs[2] = load_words<kWidth>(y + i, wide);
  }
  template <int kWidth>
  __device__ void add(const float (&kept)[kCoefficients][kWidth], const Words<T, kWidth> (&inputs)[kInputs],
                      std::int64_t i, bool wide, float (&sums)[2][kWidth]) const {
    float gradients[kWidth], values[kWidth];
    unpack(inputs[0], gradients);
    if constexpr (kRelu == ReluGradient::of_y) {
      unpack(inputs[2], values);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) gradients[k] = values[k] > 0 ? gradients[k] : 0.0f;
      store<kWidth>(gradients, wide, d_y + i);
    }
    unpack(inputs[1], values);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const float centred = values[k] - kept[0][k];
      if constexpr (kRelu == ReluGradient::recomputed) {
        gradients[k] = centred * kept[1][k] + kept[2][k] > 0 ? gradients[k] : 0.0f;
      }
      sums[0][k] += gradients[k];
      sums[1][k] += gradients[k] * centred;
    }
  }
};

/// y = relu?(gain * (x - mean) + shift + residual); kept: mean, gain, shift.
template <class T, bool kRelu>
struct Normalize {
  using Element = T;
  static constexpr int kCoefficients = 3, kInputs = 2, kRows = 4;
  const T* x;
  const T* residual;  ///< may be null
  T* y;

  template <int kWidth>
  __device__ void read(std::int64_t i, bool wide, Words<T, kWidth> (&inputs)[kInputs]) const {
    inputs[0] = load_words<kWidth>(x + i, wide);
    if (residual != nullptr) inputs[1] = load_words<kWidth>(residual + i, wide);
  }
  template <int kWidth>
  __device__ void write(const float (&kept)[kCoefficients][kWidth], const Words<T, kWidth> (&inputs)[kInputs],
                        std::int64_t i, bool wide) const {
    float values[kWidth];
    unpack(inputs[0], values);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) values[k] = (values[k] - kept[0][k]) * kept[1][k] + kept[2][k];
    if (residual != nullptr) {
      float more[kWidth];
      unpack(inputs[1], more);
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

/// Normalises with the statistics of this batch, and writes them as mean and inverse.
template <class T, bool kRelu>
struct BatchNormForward : Normalize<T, kRelu> {
  using Normalize<T, kRelu>::kCoefficients;
  const double* sums;
  std::int64_t channels;
  double epsilon;
  const T* scale;
  const T* shift;
  float* mean;
  float* inverse;

  __device__ void coefficients(std::int64_t column, bool write, float (&to)[kCoefficients]) const {
    const formulas::Moments moments = formulas::moments_of(sums[column], sums[channels + column], sums[2 * channels]);
    const auto centre = static_cast<float>(moments.mean);
    const auto deviation = static_cast<float>(formulas::inverse_deviation(moments.variance, epsilon));
    to[0] = centre;
    to[1] = to_float(scale[column]) * deviation;
    to[2] = to_float(shift[column]);
    if (!write) return;
    mean[column] = centre;
    inverse[column] = deviation;
  }
};

/// Normalises with fixed statistics.
template <class T, bool kRelu>
struct BatchNormInference : Normalize<T, kRelu> {
  using Normalize<T, kRelu>::kCoefficients;
  const T* mean;
  const T* variance;
  const T* scale;
  const T* shift;
  float epsilon;

  __device__ void coefficients(std::int64_t column, bool, float (&to)[kCoefficients]) const {
    to[0] = to_float(mean[column]);
    to[1] = to_float(scale[column]) / std::sqrt(to_float(variance[column]) + epsilon);
    to[2] = to_float(shift[column]);
  }
};

/// d_y becomes the gradient before the relu, and d_x = gain * d_y; d_x may be d_y.
template <class T, bool kRelu>
struct BatchNormInferenceBackward {
  using Element = T;
  static constexpr int kCoefficients = 1, kInputs = kRelu ? 2 : 1, kRows = 4;
  const T* y;
  T* d_y;
  const T* variance;
  const T* scale;
  T* d_x;
  float epsilon;

  __device__ void coefficients(std::int64_t column, bool, float (&to)[kCoefficients]) const {
    to[0] = to_float(scale[column]) / std::sqrt(to_float(variance[column]) + epsilon);
  }
  template <int kWidth>
  __device__ void read(std::int64_t i, bool wide, Words<T, kWidth> (&inputs)[kInputs]) const {
    inputs[0] = load_words<kWidth>(d_y + i, wide);
    if constexpr (kRelu) inputs[1] = load_words<kWidth>(y + i, wide);
  }
  template <int kWidth>
  __device__ void write(const float (&kept)[kCoefficients][kWidth], const Words<T, kWidth> (&inputs)[kInputs],
                        std::int64_t i, bool wide) const {
    float gradients[kWidth];
    unpack(inputs[0], gradients);
    if constexpr (kRelu) {
      float values[kWidth];
      unpack(inputs[1], values);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) gradients[k] = values[k] > 0 ? gradients[k] : 0.0f;
      store<kWidth>(gradients, wide, d_y + i);
    }
#pragma unroll
    for (int k = 0; k < kWidth; ++k) gradients[k] *= kept[0][k];
    store<kWidth>(gradients, wide, d_x + i);
  }
};

/// d_x = gain * (d_y - first - (x - mean) * second): gain = scale * inverse, first = mean of d_y, second = inverse *
/// mean of d_y * x_hat. shift: used only if the relu is recomputed. d_x may be d_y.
template <class T, bool kRecomputed>
struct BatchNormBackward {
  using Element = T;
  static constexpr int kCoefficients = kRecomputed ? 5 : 4, kInputs = 2, kRows = 2;
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

  __device__ void coefficients(std::int64_t column, bool, float (&to)[kCoefficients]) const {
    const double share = 1 / forward_sums[2 * channels];
    const float deviation = inverse[column];
    to[0] = mean[column];
    to[1] = to_float(scale[column]) * deviation;
    to[2] = static_cast<float>(sums[column] * share);
    to[3] = static_cast<float>(sums[channels + column] * share) * deviation;
    if constexpr (kRecomputed) to[4] = to_float(shift[column]);
  }
  template <int kWidth>
  __device__ void read(std::int64_t i, bool wide, Words<T, kWidth> (&inputs)[kInputs]) const {
    inputs[0] = load_words<kWidth>(x + i, wide);
    inputs[1] = load_words<kWidth>(d_y + i, wide);
  }
  template <int kWidth>
  __device__ void write(const float (&kept)[kCoefficients][kWidth], const Words<T, kWidth> (&inputs)[kInputs],
                        std::int64_t i, bool wide) const {
    float values[kWidth], gradients[kWidth];
    unpack(inputs[0], values);
    unpack(inputs[1], gradients);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const float centred = values[k] - kept[0][k];
      if constexpr (kRecomputed) {
        gradients[k] = centred * kept[1][k] + kept[4][k] > 0 ? gradients[k] : 0.0f;
      }
      gradients[k] = kept[1][k] * (gradients[k] - kept[2][k] - centred * kept[3][k]);
    }
    store<kWidth>(gradients, wide, d_x + i);
  }
};

}  // namespace lockstep::model::cuda
