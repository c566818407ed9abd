#include <algorithm>

#include "model/cpu/loops/channel_lanes.hpp"
#include "model/cpu/loops/exponentials.hpp"
#include "model/cpu/loops/image_loops.hpp"

namespace lockstep::model::cpu {

LOCKSTEP_CLONES void softmax_rows(const float* x, float* y, std::size_t columns, Slice rows) {
  for (std::size_t row = rows.offset; row < rows.end(); ++row) {
    const float* const from = x + row * columns;
    float* const to = y + row * columns;
    float greatest = from[0];
    for (std::size_t c = 1; c < columns; ++c) greatest = from[c] > greatest ? from[c] : greatest;
    for (std::size_t c = 0; c < columns; ++c) to[c] = fast_exp(from[c] - greatest);
    double sum = 0;
    for (std::size_t c = 0; c < columns; ++c) sum += static_cast<double>(to[c]);
    const auto share = static_cast<float>(1 / sum);
    for (std::size_t c = 0; c < columns; ++c) to[c] *= share;
  }
}

LOCKSTEP_CLONES void softmax_gradient_rows(const float* y, const float* d_y, float* d_x, std::size_t columns,
                                           Slice rows) {
  for (std::size_t row = rows.offset; row < rows.end(); ++row) {
    const float *const value = y + row * columns, *const gradient = d_y + row * columns;
    float* const to = d_x + row * columns;
    double sum = 0;
    for (std::size_t c = 0; c < columns; ++c) sum += static_cast<double>(value[c]) * static_cast<double>(gradient[c]);
    const auto mean = static_cast<float>(sum);
    for (std::size_t c = 0; c < columns; ++c) to[c] = value[c] * (gradient[c] - mean);
  }
}

LOCKSTEP_CLONES void multiply_rows(const float* a, const float* b, float* y, std::size_t columns, std::size_t served,
                                   Slice rows) {
  for (std::size_t row = rows.offset; row < rows.end(); ++row) {
    const float *const factor = b + row * columns, *from = a + row * served * columns;
    float* to = y + row * served * columns;
    for (std::size_t i = 0; i < served; ++i, from += columns, to += columns) {
      for (std::size_t c = 0; c < columns; ++c) to[c] = from[c] * factor[c];
    }
  }
}

LOCKSTEP_CLONES void multiply_sums_of_rows(const float* a, const float* d_y, float* d_b, std::size_t columns,
                                           std::size_t served, Slice rows) {
  for (std::size_t row = rows.offset; row < rows.end(); ++row) {
    const float *const left = a + row * served * columns, *const right = d_y + row * served * columns;
    for_channels(
        columns, [&](auto whole, std::size_t first, std::size_t all) __attribute__((always_inline)) {
          constexpr bool kWhole = decltype(whole)::value;
          for (std::size_t half = 0; half < 2; ++half) {
            const std::size_t c = first + half * kHalf, count = in_half(all, half);
            Doubles sum{};
            for (std::size_t i = 0; i < served; ++i) {
              HalfFloats value, gradient;
              load<kWhole>(value, left + i * columns + c, count);
              load<kWhole>(gradient, right + i * columns + c, count);
              sum += __builtin_convertvector(value, Doubles) * __builtin_convertvector(gradient, Doubles);
            }
            const HalfFloats rounded = __builtin_convertvector(sum, HalfFloats);
            store<kWhole>(rounded, d_b + row * columns + c, count);
          }
        });
  }
}

void copy_strided(const StridedCopy& copy, const float* x, float* y, Slice samples) {
  const auto& [e0, e1, e2, e3, e4] = copy.extents;
  const auto &f = copy.from_steps, &t = copy.to_steps;
  const bool dense = f[4] == 1 && t[4] == 1;
  for (std::size_t sample = samples.offset; sample < samples.end(); ++sample) {
    const float* const from = x + static_cast<std::int64_t>(sample) * copy.from_elements + copy.from_first;
    float* const to = y + static_cast<std::int64_t>(sample) * copy.to_elements + copy.to_first;
    for (std::int64_t i0 = 0; i0 < e0; ++i0) {
      for (std::int64_t i1 = 0; i1 < e1; ++i1) {
        for (std::int64_t i2 = 0; i2 < e2; ++i2) {
          for (std::int64_t i3 = 0; i3 < e3; ++i3) {
            const float* const source = from + i0 * f[0] + i1 * f[1] + i2 * f[2] + i3 * f[3];
            float* const target = to + i0 * t[0] + i1 * t[1] + i2 * t[2] + i3 * t[3];
            if (dense) {
              std::copy_n(source, e4, target);
            } else {
              for (std::int64_t i4 = 0; i4 < e4; ++i4) target[i4 * t[4]] = source[i4 * f[4]];
            }
          }
        }
      }
    }
  }
}

}  // namespace lockstep::model::cpu
