/// \file
/// Pools, averages and subsampling of images.
#pragma once

#include <cmath>
#include <cstdint>

#include "model/cuda/row_passes.cuh"

namespace lockstep::model::cuda {

/// Rows: output pixels. Columns: channels.
template <class T>
struct MaxPoolForward {
  const T* x;
  T* y;
  std::uint8_t* chosen;
  Slide slide;
  std::int64_t channels;

  template <int kWidth>
  __device__ NothingKept columns(std::int64_t, bool) const {
    return {};
  }
  template <int kWidth>
  __device__ void at(NothingKept, std::uint32_t row, std::int64_t column, bool wide) const {
    const Pixel pixel = pixel_of(row, slide.out_height, slide.out_width);
    const int top = pixel.row * slide.stride - slide.top, left = pixel.column * slide.stride - slide.left;
    float best[kWidth] = {};
    Pack<std::uint8_t, kWidth> offsets{};
    bool first = true;
    for (int i = 0; i < slide.window_height; ++i) {
      if (top + i < 0 || top + i >= slide.in_height) continue;
      for (int j = 0; j < slide.window_width; ++j) {
        if (left + j < 0 || left + j >= slide.in_width) continue;
        float values[kWidth];
        load<kWidth>(x + offset_of(pixel.image, top + i, left + j, slide.in_height, slide.in_width, channels) + column,
                     wide, values);
        const auto offset = static_cast<std::uint8_t>(i * slide.window_width + j);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
          // Not <=: greater, or a NaN, which then stays.
          if (first || (!(values[k] <= best[k]) && best[k] == best[k])) {
            best[k] = values[k];
            offsets.values[k] = offset;
          }
        }
        first = false;
      }
    }
    store<kWidth>(best, wide, y + row * channels + column);
    store_pack(offsets, wide, chosen + row * channels + column);
  }
};

/// Rows: input pixels. Columns: channels.
template <class T>
struct MaxPoolBackward {
  const std::uint8_t* chosen;
  const T* d_y;
  T* d_x;
  Slide slide;
  std::int64_t channels;

  template <int kWidth>
  __device__ NothingKept columns(std::int64_t, bool) const {
    return {};
  }
  template <int kWidth>
  __device__ void at(NothingKept, std::uint32_t row, std::int64_t column, bool wide) const {
    const Pixel pixel = pixel_of(row, slide.in_height, slide.in_width);
    float sums[kWidth] = {};
    slide.each_window(pixel, [&](int out_row, int out_column, int i, int j) {
      const std::int64_t from =
          offset_of(pixel.image, out_row, out_column, slide.out_height, slide.out_width, channels) + column;
      const auto offset = static_cast<std::uint8_t>(i * slide.window_width + j);
      const Pack<std::uint8_t, kWidth> offsets = load_pack<kWidth>(chosen + from, wide);
      float gradients[kWidth];
      load<kWidth>(d_y + from, wide, gradients);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sums[k] += offsets.values[k] == offset ? gradients[k] : 0.0f;
    });
    store<kWidth>(sums, wide, d_x + row * channels + column);
  }
};

/// Rows: images. Columns: channels. A sum goes over the pixels in their order.
template <class T>
struct AverageForward {
  const T* x;
  T* y;
  int pixels;
  std::int64_t channels;

  template <int kWidth>
  __device__ NothingKept columns(std::int64_t, bool) const {
    return {};
  }
  template <int kWidth>
  __device__ void at(NothingKept, std::uint32_t row, std::int64_t column, bool wide) const {
    float sums[kWidth] = {};
    const T* from = x + static_cast<std::int64_t>(row) * pixels * channels + column;
    for (int pixel = 0; pixel < pixels; ++pixel, from += channels) {
      float values[kWidth];
      load<kWidth>(from, wide, values);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sums[k] += values[k];
    }
    const auto count = static_cast<float>(pixels);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) sums[k] /= count;
    store<kWidth>(sums, wide, y + row * channels + column);
  }
};

/// Rows: pixels. Columns: channels.
template <class T>
struct AverageBackward {
  const T* d_y;
  T* d_x;
  int pixels;
  std::int64_t channels;

  template <int kWidth>
  __device__ NothingKept columns(std::int64_t, bool) const {
    return {};
  }
  template <int kWidth>
  __device__ void at(NothingKept, std::uint32_t row, std::int64_t column, bool wide) const {
    float values[kWidth];
    load<kWidth>(d_y + row / static_cast<std::uint32_t>(pixels) * channels + column, wide, values);
    const auto count = static_cast<float>(pixels);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) values[k] /= count;
    store<kWidth>(values, wide, d_x + row * channels + column);
  }
};

/// Every stride-th pixel of a larger image; `before` channels of zeros in front.
struct Subsample {
  int in_height, in_width, out_height, out_width, stride;
  std::int64_t in_channels, out_channels, before;

  /// The pixel of the larger image.
  __device__ std::int64_t source(std::uint32_t row) const {
    const Pixel pixel = pixel_of(row, out_height, out_width);
    return offset_of(pixel.image, pixel.row * stride, pixel.column * stride, in_height, in_width, in_channels);
  }
};

/// Rows: pixels of the smaller image. Columns: its channels.
template <class T>
struct SubsampleForward {
  const T* x;
  T* y;
  Subsample shape;

  template <int kWidth>
  __device__ NothingKept columns(std::int64_t, bool) const {
    return {};
  }
  template <int kWidth>
  __device__ void at(NothingKept, std::uint32_t row, std::int64_t column, bool wide) const {
    Pack<T, kWidth> pack{};
    const std::int64_t channel = column - shape.before;
    if (channel >= 0 && channel < shape.in_channels) pack = load_pack<kWidth>(x + shape.source(row) + channel, wide);
    store_pack(pack, wide, y + row * shape.out_channels + column);
  }
};

/// Rows: pixels of the smaller image. Columns: channels of the larger one.
template <class T>
struct SubsampleBackward {
  const T* d_y;
  T* d_x;
  Subsample shape;

  template <int kWidth>
  __device__ NothingKept columns(std::int64_t, bool) const {
    return {};
  }
  template <int kWidth>
  __device__ void at(NothingKept, std::uint32_t row, std::int64_t column, bool wide) const {
    T* const to = d_x + shape.source(row) + column;
    float gradients[kWidth], sums[kWidth];
    load<kWidth>(d_y + row * shape.out_channels + shape.before + column, wide, gradients);
    load<kWidth>(to, wide, sums);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) sums[k] += gradients[k];
    store<kWidth>(sums, wide, to);
  }
};

}  // namespace lockstep::model::cuda
