/// \file
/// Passes over the channels of positions: group normalisation, softmax, products, copies of parts.
#pragma once

#include <cmath>
#include <cstdint>

#include "model/cuda/kernels/row_passes.cuh"
#include "model/formulas/normalization.hpp"

namespace lockstep::model::cuda {

/// Shape of a group norm on the device.
struct GroupShape {
  std::int64_t places, channels;
  int groups, each;  ///< each: channels of a group

  explicit GroupShape(const GroupNorm& norm)
      : places(norm.places),
        channels(norm.channels),
        groups(static_cast<int>(norm.groups)),
        each(static_cast<int>(norm.channels / norm.groups)) {}
  __device__ std::int64_t width() const { return 2 * (channels + groups); }
  /// Returns the first group of a position's sample. row: the position, numbered through the batch.
  __device__ std::int64_t first_group(std::uint32_t row) const {
    return static_cast<std::int64_t>(row / static_cast<std::uint32_t>(places)) * groups;
  }
};

/// Group of a channel, for a thread that iterates over neighbouring channels.
struct GroupOfChannel {
  int group, inside, each;

  __device__ GroupOfChannel(const GroupShape& shape, std::int64_t channel)
      : group(static_cast<int>(channel) / shape.each),
        inside(static_cast<int>(channel) - group * shape.each),
        each(shape.each) {}
  /// Advances to the next channel. Returns true if it is the first of a group.
  __device__ __forceinline__ bool step() {
    if (++inside < each) return false;
    inside = 0;
    ++group;
    return true;
  }
};

/// Sums of x and of its squares, for sum_places().
template <class T>
struct SumsOfSquares {
  const T* x;

  struct Columns {};
  template <int kWidth>
  __device__ Columns columns(const GroupShape&, std::int64_t, std::int64_t) const {
    return {};
  }
  template <int kWidth>
  __device__ __forceinline__ void add(const Columns&, std::int64_t i, bool wide, double (&sums)[2][kWidth]) const {
    float values[kWidth];
    load<kWidth>(x + i, wide, values);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const auto value = static_cast<double>(values[k]);
      sums[0][k] += value;
      sums[1][k] += value * value;
    }
  }
};

/// Sums of d_y, and of d_y times (x - mean), for sum_places().
template <class T>
struct SumsOfGradients {
  const T* x;
  const T* d_y;
  const float* mean;

  template <int kWidth>
  struct Columns {
    float mean[kWidth];
  };
  template <int kWidth>
  __device__ Columns<kWidth> columns(const GroupShape& shape, std::int64_t sample, std::int64_t column) const {
    Columns<kWidth> columns;
    const float* const means = mean + sample * shape.groups;
    GroupOfChannel at(shape, column);
#pragma unroll
    for (int k = 0; k < kWidth; ++k, at.step()) columns.mean[k] = means[at.group];
    return columns;
  }
  template <int kWidth>
  __device__ __forceinline__ void add(const Columns<kWidth>& of, std::int64_t i, bool wide,
                                      double (&sums)[2][kWidth]) const {
    float values[kWidth], gradients[kWidth];
    load<kWidth>(x + i, wide, values);
    load<kWidth>(d_y + i, wide, gradients);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const auto gradient = static_cast<double>(gradients[k]);
      sums[0][k] += gradient;
      sums[1][k] += gradient * static_cast<double>(values[k] - of.mean[k]);
    }
  }
};

template <int kWidth>
struct PairSums {
  double of_thread[2][kWidth][kBlock];
};

/// Computes both sums of each channel of a sample over a part of its positions, and writes them to parts + ((sample *
/// parts + part) * 2 + sum) * channels. Threads of a block are arranged in rows of 1 << column_bits. Grid: samples *
/// tiles of channels; parts.
template <int kWidth, class Body>
__global__ void __launch_bounds__(kBlock)
    sum_places(Body body, GroupShape shape, std::uint32_t tiles, std::int64_t places_of_part, int column_bits,
               bool wide, double* parts) {
  const unsigned columns_of_block = 1u << column_bits;
  const std::int64_t sample = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  const std::int64_t lane = threadIdx.x & (columns_of_block - 1), column = ((tile << column_bits) + lane) * kWidth;
  const std::int64_t begin = blockIdx.y * places_of_part;
  const std::int64_t end = begin + places_of_part < shape.places ? begin + places_of_part : shape.places;
  double own[2][kWidth] = {};
  if (column < shape.channels) {
    const auto columns = body.template columns<kWidth>(shape, sample, column);
    const std::int64_t step = kBlock >> column_bits;
    std::int64_t place = begin + (threadIdx.x >> column_bits);
    std::int64_t i = (sample * shape.places + place) * shape.channels + column;
#pragma unroll 4
    for (; place < end; place += step, i += step * shape.channels) body.template add<kWidth>(columns, i, wide, own);
  }
  auto& all = shared<PairSums<kWidth>>();
#pragma unroll
  for (int s = 0; s < 2; ++s) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) all.of_thread[s][k][threadIdx.x] = own[s][k];
  }
  __syncthreads();
  for (unsigned half = kBlock / 2; half >= columns_of_block; half /= 2) {
    if (threadIdx.x < half) {
#pragma unroll
      for (int s = 0; s < 2; ++s) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) all.of_thread[s][k][threadIdx.x] += all.of_thread[s][k][threadIdx.x + half];
      }
    }
    __syncthreads();
  }
  if (threadIdx.x >= columns_of_block || column >= shape.channels) return;
  double* const to = parts + (sample * gridDim.y + blockIdx.y) * 2 * shape.channels + column;
#pragma unroll
  for (int s = 0; s < 2; ++s) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) to[s * shape.channels + k] = all.of_thread[s][k][threadIdx.x];
  }
}

/// Rows: samples. Columns: groups.
struct GroupMoments {
  const double* parts;  ///< from sum_places()
  float* mean;
  float* inverse;
  GroupShape shape;
  double epsilon;
  int count;  ///< number of parts

  template <int kWidth>
  __device__ void at(std::uint32_t row, std::int64_t group, bool) const {
    double sum = 0, squares = 0;
    for (int part = 0; part < count; ++part) {
      const double* const from = parts + (static_cast<std::int64_t>(row) * count + part) * 2 * shape.channels;
      for (std::int64_t c = group * shape.each; c < (group + 1) * shape.each; ++c) {
        sum += from[c];
        squares += from[shape.channels + c];
      }
    }
    const auto moments = formulas::moments_of(sum, squares, static_cast<double>(shape.places * shape.each));
    mean[row * shape.groups + group] = static_cast<float>(moments.mean);
    inverse[row * shape.groups + group] = static_cast<float>(formulas::inverse_deviation(moments.variance, epsilon));
  }
};

/// Rows: positions of samples. Columns: channels.
template <class T>
struct GroupNormalize {
  const T* x;
  const T* scale;
  const T* shift;
  const float* mean;
  const float* inverse;
  T* y;
  GroupShape shape;

  template <int kWidth>
  __device__ void at(std::uint32_t row, std::int64_t column, bool wide) const {
    const std::int64_t i = row * shape.channels + column, first = shape.first_group(row);
    float values[kWidth], scales[kWidth], shifts[kWidth];
    load<kWidth>(x + i, wide, values);
    load<kWidth>(scale + column, wide, scales);
    load<kWidth>(shift + column, wide, shifts);
    GroupOfChannel at(shape, column);
    float centre = mean[first + at.group], factor = inverse[first + at.group];
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      values[k] = scales[k] * ((values[k] - centre) * factor) + shifts[k];
      if (k + 1 == kWidth || !at.step()) continue;
      centre = mean[first + at.group];
      factor = inverse[first + at.group];
    }
    store<kWidth>(values, wide, y + i);
  }
};

/// sums[sample] = sums of d_y, and of d_y times the normalised x. Rows: samples. Columns: channels.
struct GroupGradientSums {
  const double* parts;  ///< from sum_places()
  const float* inverse;
  double* sums;
  GroupShape shape;
  int count;  ///< number of parts

  template <int kWidth>
  __device__ void at(std::uint32_t row, std::int64_t column, bool) const {
    double gradients = 0, products = 0;
    for (int part = 0; part < count; ++part) {
      const double* const from = parts + (static_cast<std::int64_t>(row) * count + part) * 2 * shape.channels + column;
      gradients += from[0];
      products += from[shape.channels];
    }
    const std::int64_t group = row * static_cast<std::int64_t>(shape.groups) + column / shape.each;
    sums[row * shape.width() + column] = gradients;
    sums[row * shape.width() + shape.channels + column] = products * static_cast<double>(inverse[group]);
  }
};

/// Writes, after the sums, the means over each group of both sums times scale. Rows: samples. Columns: groups.
template <class T>
struct GroupGradientMeans {
  const T* scale;
  double* sums;
  GroupShape shape;

  template <int kWidth>
  __device__ void at(std::uint32_t row, std::int64_t group, bool) const {
    double* const own = sums + row * shape.width();
    double first = 0, second = 0;
    for (std::int64_t c = group * shape.each; c < (group + 1) * shape.each; ++c) {
      first += static_cast<double>(to_float(scale[c])) * own[c];
      second += static_cast<double>(to_float(scale[c])) * own[shape.channels + c];
    }
    const auto count = static_cast<double>(shape.places * shape.each);
    own[2 * shape.channels + group] = first / count;
    own[2 * shape.channels + shape.groups + group] = second / count;
  }
};

/// Rows: positions of samples. Columns: channels. d_x may be d_y.
template <class T>
struct GroupGradient {
  const T* x;
  const T* d_y;
  const T* scale;
  const float* mean;
  const float* inverse;
  const double* sums;
  T* d_x;
  GroupShape shape;

  template <int kWidth>
  __device__ void at(std::uint32_t row, std::int64_t column, bool wide) const {
    const std::int64_t i = row * shape.channels + column, first = shape.first_group(row);
    const double* const means = sums + first / shape.groups * shape.width() + 2 * shape.channels;
    float values[kWidth], gradients[kWidth], scales[kWidth];
    load<kWidth>(x + i, wide, values);
    load<kWidth>(d_y + i, wide, gradients);
    load<kWidth>(scale + column, wide, scales);
    GroupOfChannel at(shape, column);
    float centre = 0, factor = 0, gradient = 0, product = 0;
    const auto enter = [&] {
      centre = mean[first + at.group];
      factor = inverse[first + at.group];
      gradient = static_cast<float>(means[at.group]);
      product = static_cast<float>(means[shape.groups + at.group]);
    };
    enter();
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const float normal = (values[k] - centre) * factor;
      values[k] = factor * (gradients[k] * scales[k] - gradient - normal * product);
      if (k + 1 < kWidth && at.step()) enter();
    }
    store<kWidth>(values, wide, d_x + i);
  }
};

/// d_scale and d_shift = or += sums over the samples, in order. One row. Columns: channels.
struct GroupParameterGradient {
  const double* sums;
  float* d_scale;
  float* d_shift;
  GroupShape shape;
  std::int64_t samples;
  bool add;

  template <int kWidth>
  __device__ void at(std::uint32_t, std::int64_t column, bool) const {
    double scales = 0, shifts = 0;
    for (std::int64_t b = 0; b < samples; ++b) {
      shifts += sums[b * shape.width() + column];
      scales += sums[b * shape.width() + shape.channels + column];
    }
    if (d_scale != nullptr) d_scale[column] = (add ? d_scale[column] : 0.0f) + static_cast<float>(scales);
    if (d_shift != nullptr) d_shift[column] = (add ? d_shift[column] : 0.0f) + static_cast<float>(shifts);
  }
};

/// One row per thread. y may be x.
template <class T>
struct SoftmaxForward {
  const T* x;
  T* y;
  std::int64_t columns_of_row;

  template <int kWidth>
  __device__ void at(std::uint32_t row, std::int64_t, bool) const {
    const T* const from = x + row * columns_of_row;
    T* const to = y + row * columns_of_row;
    float greatest = to_float(from[0]);
    for (std::int64_t c = 1; c < columns_of_row; ++c) {
      const float value = to_float(from[c]);
      greatest = value > greatest ? value : greatest;
    }
    float sum = 0;
    for (std::int64_t c = 0; c < columns_of_row; ++c) sum += std::exp(to_float(from[c]) - greatest);
    for (std::int64_t c = 0; c < columns_of_row; ++c) {
      const float values[1] = {std::exp(to_float(from[c]) - greatest) / sum};
      store<1>(values, false, to + c);
    }
  }
};

/// One row per thread. d_x may be d_y.
template <class T>
struct SoftmaxBackward {
  const T* y;
  const T* d_y;
  T* d_x;
  std::int64_t columns_of_row;

  template <int kWidth>
  __device__ void at(std::uint32_t row, std::int64_t, bool) const {
    const std::int64_t first = row * columns_of_row;
    float sum = 0;
    for (std::int64_t c = first; c < first + columns_of_row; ++c) sum += to_float(y[c]) * to_float(d_y[c]);
    for (std::int64_t c = first; c < first + columns_of_row; ++c) {
      const float values[1] = {to_float(y[c]) * (to_float(d_y[c]) - sum)};
      store<1>(values, false, d_x + c);
    }
  }
};

/// Rows: rows of a. Columns: columns. y may be a.
template <class T>
struct MultiplyRows {
  const T* a;
  const T* b;
  T* y;
  std::int64_t columns_of_row, served;

  template <int kWidth>
  __device__ void at(std::uint32_t row, std::int64_t column, bool wide) const {
    float values[kWidth], factors[kWidth];
    load<kWidth>(a + row * columns_of_row + column, wide, values);
    load<kWidth>(b + row / served * columns_of_row + column, wide, factors);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) values[k] *= factors[k];
    store<kWidth>(values, wide, y + row * columns_of_row + column);
  }
};

/// Rows: rows of d_b. Columns: columns.
template <class T>
struct MultiplySums {
  const T* a;
  const T* d_y;
  T* d_b;
  std::int64_t columns_of_row, served;

  template <int kWidth>
  __device__ void at(std::uint32_t row, std::int64_t column, bool wide) const {
    float sums[kWidth] = {};
    for (std::int64_t i = row * served; i < (row + 1) * served; ++i) {
      float values[kWidth], gradients[kWidth];
      load<kWidth>(a + i * columns_of_row + column, wide, values);
      load<kWidth>(d_y + i * columns_of_row + column, wide, gradients);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sums[k] += values[k] * gradients[k];
    }
    store<kWidth>(sums, wide, d_b + row * columns_of_row + column);
  }
};

/// StridedCopy on the device.
struct CopySteps {
  std::int64_t extents[5], from_steps[5], to_steps[5];
  std::int64_t from_first, to_first, from_elements, to_elements;

  explicit CopySteps(const StridedCopy& copy)
      : from_first(copy.from_first),
        to_first(copy.to_first),
        from_elements(copy.from_elements),
        to_elements(copy.to_elements) {
    for (std::size_t i = 0; i < copy.extents.size(); ++i) {
      extents[i] = copy.extents[i];
      from_steps[i] = copy.from_steps[i];
      to_steps[i] = copy.to_steps[i];
    }
  }
};

/// Rows: all extents but the last, of all samples. Columns: the last extent. The `granule` of run_rows() divides all
/// steps.
template <class T>
struct CopyStrided {
  const T* x;
  T* y;
  CopySteps copy;

  template <int kWidth>
  __device__ void at(std::uint32_t row, std::int64_t column, bool wide) const {
    std::int64_t rest = row, from = copy.from_first + column * copy.from_steps[4],
                 to = copy.to_first + column * copy.to_steps[4];
#pragma unroll
    for (int k = 3; k >= 0; --k) {
      const std::int64_t i = rest % copy.extents[k];
      rest /= copy.extents[k];
      from += i * copy.from_steps[k];
      to += i * copy.to_steps[k];
    }
    store_pack(load_pack<kWidth>(x + rest * copy.from_elements + from, wide), wide, y + rest * copy.to_elements + to);
  }
};

}  // namespace lockstep::model::cuda
