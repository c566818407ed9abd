/// \file
/// Passes over the channels of places: group normalisation, softmax, products, copies of parts.
#pragma once

#include <cmath>
#include <cstdint>

#include "model/cuda/row_passes.cuh"
#include "model/formulas/normalization.hpp"

namespace lockstep::model::cuda {

/// Shape of a group norm, in the form for the device.
struct GroupShape {
  std::int64_t places, channels;
  int groups, each;  ///< each: channels of a group

  explicit GroupShape(const GroupNorm& norm)
      : places(norm.places),
        channels(norm.channels),
        groups(static_cast<int>(norm.groups)),
        each(static_cast<int>(norm.channels / norm.groups)) {}
  __device__ std::int64_t width() const { return 2 * (channels + groups); }
};

/// Rows: samples. Columns: groups.
template <class T>
struct GroupMoments {
  const T* x;
  float* mean;
  float* inverse;
  GroupShape shape;
  double epsilon;

  template <int kWidth>
  __device__ void at(std::uint32_t row, std::int64_t group, bool) const {
    double sum = 0, squares = 0;
    const T* from = x + row * shape.places * shape.channels + group * shape.each;
    for (std::int64_t place = 0; place < shape.places; ++place, from += shape.channels) {
      for (int c = 0; c < shape.each; ++c) {
        const double value = static_cast<double>(to_float(from[c]));
        sum += value;
        squares += value * value;
      }
    }
    const auto moments = formulas::moments_of(sum, squares, static_cast<double>(shape.places * shape.each));
    mean[row * shape.groups + group] = static_cast<float>(moments.mean);
    inverse[row * shape.groups + group] = static_cast<float>(formulas::inverse_deviation(moments.variance, epsilon));
  }
};

/// Rows: places of samples. Columns: channels.
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
  __device__ void at(std::uint32_t row, std::int64_t column, bool) const {
    const std::int64_t group = row / shape.places * shape.groups + column / shape.each,
                       i = row * shape.channels + column;
    const float normal = (to_float(x[i]) - mean[group]) * inverse[group];
    const float values[1] = {to_float(scale[column]) * normal + to_float(shift[column])};
    store<1>(values, false, y + i);
  }
};

/// sums[sample] = the sums of d_y, and of d_y times the normalised x. Rows: samples. Columns: channels.
template <class T>
struct GroupGradientSums {
  const T* x;
  const T* d_y;
  const float* mean;
  const float* inverse;
  double* sums;
  GroupShape shape;

  template <int kWidth>
  __device__ void at(std::uint32_t row, std::int64_t column, bool) const {
    const std::int64_t group = row * static_cast<std::int64_t>(shape.groups) + column / shape.each;
    const std::int64_t first = row * shape.places * shape.channels + column;
    double gradients = 0, products = 0;
    for (std::int64_t place = 0; place < shape.places; ++place) {
      const double gradient = static_cast<double>(to_float(d_y[first + place * shape.channels]));
      gradients += gradient;
      products += gradient * static_cast<double>(to_float(x[first + place * shape.channels]) - mean[group]);
    }
    sums[row * shape.width() + column] = gradients;
    sums[row * shape.width() + shape.channels + column] = products * static_cast<double>(inverse[group]);
  }
};

/// The means over a group of both sums times scale, behind them. Rows: samples. Columns: groups.
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

/// Rows: places of samples. Columns: channels. d_x may be d_y.
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
  __device__ void at(std::uint32_t row, std::int64_t column, bool) const {
    const std::int64_t sample = row / shape.places, own = column / shape.each, group = sample * shape.groups + own,
                       i = row * shape.channels + column;
    const double* const means = sums + sample * shape.width() + 2 * shape.channels;
    const float normal = (to_float(x[i]) - mean[group]) * inverse[group];
    const float values[1] = {inverse[group] *
                             (to_float(d_y[i]) * to_float(scale[column]) - static_cast<float>(means[own]) -
                              normal * static_cast<float>(means[shape.groups + own]))};
    store<1>(values, false, d_x + i);
  }
};

/// d_scale and d_shift = or += the sums over the samples, in order. One row. Columns: channels.
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

/// Rows: rows. One column: a thread has a row. y may be x.
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

/// As SoftmaxForward. d_x may be d_y.
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

/// StridedCopy in the form for the device.
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

/// Rows: all but the last extent, of all samples. Columns: the last extent. `granule` of run_rows() divides all steps.
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
