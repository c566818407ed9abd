/// \file
/// Passes for sequences that compute elements independently or in groups of four: bodies of each_element() and
/// sum_columns(), and kernels.
#pragma once

#include <cstdint>

#include "model/cuda/kernels/launch.cuh"
#include "model/cuda/kernels/packs.cuh"
#include "model/cuda/kernels/sequence_kernels.hpp"
#include "model/formulas/dropout.hpp"
#include "model/formulas/gelu.hpp"
#include "model/formulas/gru.hpp"
#include "model/formulas/lstm.hpp"
#include "model/formulas/padding.hpp"
#include "model/formulas/token.hpp"

namespace lockstep::model::cuda {

/// out[p * samples + s] = in[s * positions + p]; fewer than 2^32 tokens.
struct TimeMajor {
  const std::int32_t* in;
  std::int32_t* out;
  unsigned samples, positions;

  template <int kWidth>
  __device__ void at(std::int64_t i) const {
    const auto to = static_cast<unsigned>(i);
    out[to] = in[static_cast<std::size_t>(to % samples) * positions + to / samples];
  }
};

/// out[s * count + i] = token of in[s * numbers + i]; fewer than 2^32 tokens.
template <class T>
struct ToTokens {
  const T* in;
  std::int32_t* out;
  std::int64_t numbers, vocabulary;
  unsigned count;

  template <int kWidth>
  __device__ void at(std::int64_t i) const {
    const auto to = static_cast<unsigned>(i);
    out[to] = formulas::token(in[to / count * numbers + to % count], vocabulary);
  }
};

/// places[i] = distance to the last separator, or else to the sample's first token; in time-major order, to the token
/// before it. Fewer than 2^32 tokens.
struct PlacesInDocuments {
  const std::int32_t* tokens;
  std::int32_t* places;
  std::int32_t separator;
  unsigned columns;
  bool time_major;

  template <int kWidth>
  __device__ void at(std::int64_t i) const {
    const auto row = static_cast<unsigned>(i) / columns, column = static_cast<unsigned>(i) % columns;
    const auto position = static_cast<std::int32_t>(time_major ? row : column);
    const std::int64_t step = time_major ? columns : 1;
    std::int32_t back = 0;
    while (back < position && tokens[i - back * step] != separator) ++back;
    places[i] = time_major && tokens[i - back * step] != separator ? back + 1 : back;
  }
};

/// Fewer than 2^32 rows.
struct MarkPaddedRows {
  const std::int32_t* lengths;
  std::int32_t* marks;
  std::size_t samples, rows;
  PaddedRows kind;

  template <int kWidth>
  __device__ void at(std::int64_t i) const {
    marks[i] = formulas::padded_row(static_cast<std::size_t>(i), lengths, samples, rows, kind);
  }
};

template <class T>
struct CarryRows {
  const T* x;
  const std::int32_t* places;
  T* y;
  std::int64_t columns;
  bool accumulates;

  template <int kWidth>
  __device__ void at(std::int64_t i) const {
    float carried[1] = {places[i / columns] != 0 ? to_float(x[i]) : 0.0f};
    if (accumulates) carried[0] += to_float(y[i]);
    store<1>(carried, false, y + i);
  }
};

/// Computes the mean, maximum or last number of a column of a sample, or the gradient.
template <class T>
struct PoolSeries {
  const T* x;
  const std::int32_t* lengths;
  T *y, *d_x;
  const T* d_y;  ///< null: forward
  std::int64_t columns, steps;
  PaddedSeries::Pool pool;

  template <int kWidth>
  __device__ void at(std::int64_t i) const {
    const std::int64_t sample = i / columns, first = sample * steps * columns + i % columns;
    const auto count =
        static_cast<std::int64_t>(formulas::steps_of_length(lengths[sample], static_cast<std::size_t>(steps)));
    const bool is_mean = pool == PaddedSeries::Pool::mean;
    std::int64_t chosen = pool == PaddedSeries::Pool::last ? count - 1 : 0;
    float result[1] = {};
    if (is_mean && d_y == nullptr) {
      for (std::int64_t step = 0; step < count; ++step) result[0] += to_float(x[first + step * columns]);
      if (count > 0) result[0] /= static_cast<float>(count);
    } else if (pool == PaddedSeries::Pool::max) {
      float greatest = count > 0 ? to_float(x[first]) : 0.0f;
      for (std::int64_t step = 1; step < count; ++step) {
        const float value = to_float(x[first + step * columns]);
        if (value > greatest) greatest = value, chosen = step;
      }
      result[0] = greatest;
    } else if (d_y == nullptr && count > 0) {
      result[0] = to_float(x[first + chosen * columns]);
    }
    if (d_y == nullptr) return store<1>(result, false, y + i);
    const float gradient = to_float(d_y[i]);
    for (std::int64_t step = 0; step < steps; ++step) {
      const float share = is_mean ? gradient / static_cast<float>(count) : step == chosen ? gradient : 0.0f;
      const float value[1] = {step < count ? share : 0.0f};
      store<1>(value, false, d_x + first + step * columns);
    }
  }
};

template <class T>
struct Gelu {
  const T* x;
  T* y;

  template <int kWidth>
  __device__ void at(std::int64_t i) const {
    float values[kWidth];
    load<kWidth>(x + i, true, values);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) values[k] = formulas::gelu(values[k]);
    store<kWidth>(values, true, y + i);
  }
};

/// x += bias; y = gelu(x as stored). Threads are arranged as in add_bias_rows().
template <int kWidth, class T>
__global__ void __launch_bounds__(kBlock)
    gelu_rows(T* x, const T* bias, T* y, std::int64_t rows, std::int64_t columns, int column_bits, bool wide) {
  const std::int64_t lane = threadIdx.x & ((1u << column_bits) - 1);
  const std::int64_t column = ((static_cast<std::int64_t>(blockIdx.x) << column_bits) + lane) * kWidth;
  if (column >= columns) return;
  float shift[kWidth];
  load<kWidth>(bias + column, wide, shift);
  const std::int64_t rows_of_block = blockDim.x >> column_bits;
  const std::int64_t stride = gridDim.y * rows_of_block;
  for (std::int64_t row = blockIdx.y * rows_of_block + (threadIdx.x >> column_bits); row < rows; row += stride) {
    const std::int64_t at = row * columns + column;
    float values[kWidth];
    load<kWidth>(x + at, wide, values);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) values[k] += shift[k];
    store<kWidth>(values, wide, x + at);
    load<kWidth>(x + at, wide, values);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) values[k] = formulas::gelu(values[k]);
    store<kWidth>(values, wide, y + at);
  }
}

/// d_y *= gelu'(x). The stored values are the terms of d_bias.
template <class T>
struct GeluBack {
  const T* x;
  T* d_y;
  std::int64_t columns;
  bool wide;

  template <int kWidth>
  __device__ void write(std::int64_t i, bool packs, float (&gradients)[kWidth]) const {
    float values[kWidth];
    load<kWidth>(x + i, packs, values);
    load<kWidth>(d_y + i, packs, gradients);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) gradients[k] *= formulas::gelu_derivative(values[k]);
    store<kWidth>(gradients, packs, d_y + i);
  }
  template <int kWidth>
  __device__ void at(std::int64_t i) const {
    float gradients[kWidth];
    write<kWidth>(i, true, gradients);
  }
  template <int kWidth>
  __device__ void at(std::int64_t row, std::int64_t column, float (&terms)[1][kWidth]) const {
    write<kWidth>(row * columns + column, wide, terms[0]);
  }
};

/// Maps samples to their rows and elements.
struct DropoutRows {
  std::int64_t samples, positions, columns;
  RowOrder order;
  std::int64_t first;  ///< index of the first of the sample's elements in the rows

  __device__ std::int64_t row_of(std::int64_t sample, std::int64_t position) const {
    return order == RowOrder::sample_major ? sample * positions + position : position * samples + sample;
  }
};

/// One draw per thread, for four consecutive elements of a sample. They may span several rows if the row length is not
/// a multiple of four. Block y processes the samples y, y + gridDim.y, ...
template <class T>
__global__ void __launch_bounds__(kBlock)
    drop_groups(const T* x, const std::uint64_t* keys, formulas::DropoutNumbers numbers, DropoutRows rows, bool wide,
                T* y) {
  const std::int64_t end = rows.first + rows.positions * rows.columns;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t sample = blockIdx.y; sample < rows.samples; sample += gridDim.y) {
    const std::uint64_t key = keys[sample];
    for (std::int64_t group = rows.first / 4 + static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
         4 * group < end; group += stride) {
      const formulas::DropoutGroup kept = formulas::dropout_group(numbers, key, static_cast<std::uint64_t>(group));
      const std::int64_t before =
          4 * group < rows.first ? rows.first - 4 * group : 0;  // elements of an earlier position
      const std::int64_t element = 4 * group + before - rows.first;
      std::int64_t position = element / rows.columns, column = element % rows.columns;
      if (wide) {  // groups are then whole
        const std::int64_t at = rows.row_of(sample, position) * rows.columns + column;
        float values[4];
        load<4>(x + at, true, values);
#pragma unroll
        for (int k = 0; k < 4; ++k) values[k] *= kept.factor[k];
        store<4>(values, true, y + at);
        continue;
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (k < before) continue;
        if (4 * group + k >= end) break;
        const std::int64_t at = rows.row_of(sample, position) * rows.columns + column;
        float value[1];
        load<1>(x + at, false, value);
        value[0] *= kept.factor[k];
        store<1>(value, false, y + at);
        if (++column == rows.columns) {
          column = 0;
          ++position;
        }
      }
    }
  }
}

/// One step of an LSTM: element i is unit i % units of sequence i / units.
template <class T>
struct LstmUnits {
  T* gates;
  const T* cells_before;
  T *cells, *hidden;
  std::int64_t units;

  template <int kWidth>
  __device__ void at(std::int64_t i) const {
    T* const to = gates + i / units * 4 * units + i % units;
    float z[4][kWidth], cell[kWidth], out[kWidth];
#pragma unroll
    for (int g = 0; g < 4; ++g) load<kWidth>(to + g * units, true, z[g]);
    load<kWidth>(cells_before + i, true, cell);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const formulas::LstmGates<float> active = formulas::lstm_activate<float>({z[0][k], z[1][k], z[2][k], z[3][k]});
      const formulas::LstmState<float> state = formulas::lstm_step(active, cell[k]);
      formulas::put_gates(active, k, z);
      cell[k] = state.cell;
      out[k] = state.hidden;
    }
#pragma unroll
    for (int g = 0; g < 4; ++g) store<kWidth>(z[g], true, to + g * units);
    store<kWidth>(cell, true, cells + i);
    store<kWidth>(out, true, hidden + i);
  }
};

template <class T>
struct LstmUnitsBack {
  T* gates;
  const T *cells_before, *cells, *d_hidden;
  const float* parts;  ///< may be null
  T* d_cell;
  std::int64_t units, count;
  bool last;

  template <int kWidth>
  __device__ void at(std::int64_t i) const {
    T* const to = gates + i / units * 4 * units + i % units;
    float z[4][kWidth], before[kWidth], after[kWidth], reaches[kWidth], d[kWidth] = {};
#pragma unroll
    for (int g = 0; g < 4; ++g) load<kWidth>(to + g * units, true, z[g]);
    load<kWidth>(cells_before + i, true, before);
    load<kWidth>(cells + i, true, after);
    load<kWidth>(d_hidden + i, true, reaches);
    if (!last) load<kWidth>(d_cell + i, true, d);
    if (parts != nullptr) {
      float part[kLstmParts][kWidth];
#pragma unroll
      for (int p = 0; p < kLstmParts; ++p) load<kWidth>(parts + p * count + i, true, part[p]);
#pragma unroll
      for (int p = 0; p < kLstmParts; ++p) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) reaches[k] += part[p][k];
      }
    }
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const formulas::LstmGradients<float> back =
          formulas::lstm_step_back<float>({z[0][k], z[1][k], z[2][k], z[3][k]}, before[k], after[k], reaches[k], d[k]);
      formulas::put_gates(back.sums, k, z);
      d[k] = back.cell_before;
    }
#pragma unroll
    for (int g = 0; g < 4; ++g) store<kWidth>(z[g], true, to + g * units);
    store<kWidth>(d, true, d_cell + i);
  }
};

/// One step of a GRU: element i is unit i % units of sequence i / units.
template <class T>
struct GruUnits {
  T *gates, *products;
  const T *bias, *hidden_before;
  T* hidden;
  std::int64_t units;

  template <int kWidth>
  __device__ void at(std::int64_t i) const {
    const std::int64_t unit = i % units, first = i / units * 3 * units + unit;
    float a[3][kWidth], p[3][kWidth], c[kWidth], before[kWidth];
#pragma unroll
    for (int g = 0; g < 3; ++g) {
      load<kWidth>(gates + first + g * units, true, a[g]);
      load<kWidth>(products + first + g * units, true, p[g]);
      load<kWidth>(bias + unit + g * units, true, c);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) p[g][k] += c[k];
    }
    load<kWidth>(hidden_before + i, true, before);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const formulas::GruGates<float> active =
          formulas::gru_activate<float>({a[0][k], a[1][k], a[2][k]}, {p[0][k], p[1][k], p[2][k]});
      a[0][k] = active.reset;
      a[1][k] = active.update;
      a[2][k] = active.candidate;
      before[k] = formulas::gru_step(active, before[k]);
    }
#pragma unroll
    for (int g = 0; g < 3; ++g) store<kWidth>(a[g], true, gates + first + g * units);
    store<kWidth>(p[2], true, products + first + 2 * units);
    store<kWidth>(before, true, hidden + i);
  }
};

template <class T>
struct GruUnitsBack {
  T *gates, *products;
  const T *hidden_before, *d_hidden;
  T* d_before;  ///< null at the first step
  std::int64_t units;

  template <int kWidth>
  __device__ void at(std::int64_t i) const {
    const std::int64_t first = i / units * 3 * units + i % units;
    float a[3][kWidth], p[3][kWidth], before[kWidth], d[kWidth], passed[kWidth] = {};
#pragma unroll
    for (int g = 0; g < 3; ++g) load<kWidth>(gates + first + g * units, true, a[g]);
    load<kWidth>(products + first + 2 * units, true, p[2]);
    load<kWidth>(hidden_before + i, true, before);
    load<kWidth>(d_hidden + i, true, d);
    if (d_before != nullptr) load<kWidth>(d_before + i, true, passed);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const formulas::GruGradients<float> back =
          formulas::gru_step_back<float>({a[0][k], a[1][k], a[2][k]}, p[2][k], before[k], d[k]);
      a[0][k] = back.inputs.reset;
      a[1][k] = back.inputs.update;
      a[2][k] = back.inputs.candidate;
      p[0][k] = back.products.reset;
      p[1][k] = back.products.update;
      p[2][k] = back.products.candidate;
      passed[k] += back.before;
    }
#pragma unroll
    for (int g = 0; g < 3; ++g) {
      store<kWidth>(a[g], true, gates + first + g * units);
      store<kWidth>(p[g], true, products + first + g * units);
    }
    if (d_before != nullptr) store<kWidth>(passed, true, d_before + i);
  }
};

}  // namespace lockstep::model::cuda
