/// \file
/// Pools, averages, upsampling and subsampling of images.
#pragma once

#include <cmath>
#include <cstdint>

#include "model/cuda/kernels/row_passes.cuh"
#include "model/formulas/upsampling.hpp"

namespace lockstep::model::cuda {

/// Rows: output pixels. Columns: channels. kSide: side of a square window whose loads are all in flight together; 0:
/// any window, one load at a time.
template <class T, int kSide>
struct MaxPoolForward {
  const T* x;
  T* y;
  std::uint8_t* chosen;
  Slide slide;
  std::int64_t channels;

  template <int kWidth>
  struct Greatest {
    float values[kWidth] = {};
    Pack<std::uint8_t, kWidth> offsets{};
    bool first = true;

    __device__ __forceinline__ void take(const float (&more)[kWidth], std::uint8_t offset) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        // Not <=, so that a NaN is taken and kept.
        if (first || (!(more[k] <= values[k]) && values[k] == values[k])) {
          values[k] = more[k];
          offsets.values[k] = offset;
        }
      }
      first = false;
    }
  };

  template <int kWidth>
  __device__ void at(std::uint32_t row, std::int64_t column, bool wide) const {
    const Pixel pixel = pixel_of(row, slide.out_height, slide.out_width);
    const int top = pixel.row * slide.stride - slide.top, left = pixel.column * slide.stride - slide.left;
    const auto inside = [&](int i, int j) {
      return top + i >= 0 && top + i < slide.in_height && left + j >= 0 && left + j < slide.in_width;
    };
    const auto from = [&](int i, int j) {
      return x + offset_of(pixel.image, top + i, left + j, slide.in_height, slide.in_width, channels) + column;
    };
    Greatest<kWidth> greatest;
    float values[kWidth];
    if constexpr (kSide > 0) {
      Words<T, kWidth> words[kSide][kSide] = {};
#pragma unroll
      for (int i = 0; i < kSide; ++i) {
#pragma unroll
        for (int j = 0; j < kSide; ++j) {
          if (inside(i, j)) words[i][j] = load_words<kWidth>(from(i, j), wide);
        }
      }
#pragma unroll
      for (int i = 0; i < kSide; ++i) {
#pragma unroll
        for (int j = 0; j < kSide; ++j) {
          if (!inside(i, j)) continue;
          unpack(words[i][j], values);
          greatest.take(values, static_cast<std::uint8_t>(i * kSide + j));
        }
      }
    } else {
#pragma unroll 1  // on compute capability 8.0 more unrolling spills registers
      for (int i = 0; i < slide.window_height; ++i) {
#pragma unroll 1
        for (int j = 0; j < slide.window_width; ++j) {
          if (!inside(i, j)) continue;
          load<kWidth>(from(i, j), wide, values);
          greatest.take(values, static_cast<std::uint8_t>(i * slide.window_width + j));
        }
      }
    }
    store<kWidth>(greatest.values, wide, y + row * channels + column);
    store_pack(greatest.offsets, wide, chosen + row * channels + column);
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
  __device__ void at(std::uint32_t row, std::int64_t column, bool wide) const {
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

/// MaxPoolBackward for 3 x 3 windows with stride 2. Rows: squares of 2 x 2 input pixels, at 2 p - top and 2 q - left.
/// Only the windows (p - 1, q - 1) to (p, q) contain them; these are read once for all four pixels. Sums have the order
/// of MaxPoolBackward.
template <class T>
struct MaxPoolBackwardOfSquares {
  const std::uint8_t* chosen;
  const T* d_y;
  T* d_x;
  Slide slide;
  std::int64_t channels;
  int rows_of_squares, columns_of_squares;

  static bool is_for(const Slide& slide) {
    return slide.window_height == 3 && slide.window_width == 3 && slide.stride == 2;
  }
  template <int kWidth>
  __device__ void at(std::uint32_t row, std::int64_t column, bool wide) const {
    const Pixel square = pixel_of(row, rows_of_squares, columns_of_squares);
    Words<std::uint8_t, kWidth> choices[2][2] = {};
    Words<T, kWidth> gradients[2][2] = {};
    bool there[2][2];
#pragma unroll
    for (int above = 0; above < 2; ++above) {
#pragma unroll
      for (int before = 0; before < 2; ++before) {
        const int p = square.row - above, q = square.column - before;
        there[above][before] = p >= 0 && p < slide.out_height && q >= 0 && q < slide.out_width;
        if (!there[above][before]) continue;
        const std::int64_t from = offset_of(square.image, p, q, slide.out_height, slide.out_width, channels) + column;
        choices[above][before] = load_words<kWidth>(chosen + from, wide);
        gradients[above][before] = load_words<kWidth>(d_y + from, wide);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int h = 2 * square.row + i - slide.top, w = 2 * square.column + j - slide.left;
        if (h < 0 || h >= slide.in_height || w < 0 || w >= slide.in_width) continue;
        float sums[kWidth] = {};
        // The first row of a square is the first row of window p and the third of window p - 1. The second row is the
        // second of p.
#pragma unroll
        for (int above = 0; above <= 1 - i; ++above) {
#pragma unroll
          for (int before = 0; before <= 1 - j; ++before) {
            if (!there[above][before]) continue;
            const auto offset = static_cast<std::uint8_t>((i + 2 * above) * 3 + j + 2 * before);
            Pack<std::uint8_t, kWidth> offsets;
            memcpy(&offsets, &choices[above][before], sizeof offsets);
            float values[kWidth];
            unpack(gradients[above][before], values);
#pragma unroll
            for (int k = 0; k < kWidth; ++k) sums[k] += offsets.values[k] == offset ? values[k] : 0.0f;
          }
        }
        store<kWidth>(sums, wide,
                      d_x + offset_of(square.image, h, w, slide.in_height, slide.in_width, channels) + column);
      }
    }
  }
};

/// MaxPoolForward for any window in up to three directions.
template <class T>
struct VolumeMaxPoolForward {
  const T* x;
  T* y;
  std::uint8_t* chosen;
  SlideOfVolumes slide;
  std::int64_t channels;

  template <int kWidth>
  __device__ void at(std::uint32_t row, std::int64_t column, bool wide) const {
    typename MaxPoolForward<T, 0>::template Greatest<kWidth> greatest;
    slide.each_pixel(slide.out_place(row), [&](std::int64_t from, int position) {
      float values[kWidth];
      load<kWidth>(x + from * channels + column, wide, values);
      greatest.take(values, static_cast<std::uint8_t>(position));
    });
    store<kWidth>(greatest.values, wide, y + row * channels + column);
    store_pack(greatest.offsets, wide, chosen + row * channels + column);
  }
};

/// MaxPoolBackward for any window in up to three directions.
template <class T>
struct VolumeMaxPoolBackward {
  const std::uint8_t* chosen;
  const T* d_y;
  T* d_x;
  SlideOfVolumes slide;
  std::int64_t channels;

  template <int kWidth>
  __device__ void at(std::uint32_t row, std::int64_t column, bool wide) const {
    float sums[kWidth] = {};
    slide.each_window(slide.in_place(row), [&](std::int64_t out, int position) {
      const std::int64_t from = out * channels + column;
      const Pack<std::uint8_t, kWidth> offsets = load_pack<kWidth>(chosen + from, wide);
      float gradients[kWidth];
      load<kWidth>(d_y + from, wide, gradients);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        sums[k] += offsets.values[k] == static_cast<std::uint8_t>(position) ? gradients[k] : 0.0f;
      }
    });
    store<kWidth>(sums, wide, d_x + row * channels + column);
  }
};

/// Divisor of an average pool.
struct PoolDivisor {
  AveragePool::Divisor kind;
  int positions;

  explicit PoolDivisor(const AveragePool& shape)
      : kind(shape.divisor), positions(static_cast<int>(shape.pool.window.positions())) {}
  __device__ __forceinline__ float share(int seen) const {
    if (kind == AveragePool::Divisor::one) return 1.0f;
    return 1.0f / static_cast<float>(kind == AveragePool::Divisor::seen ? seen : positions);
  }
};

/// Rows: output pixels. Columns: channels.
template <class T>
struct AveragePoolForward {
  const T* x;
  T* y;
  SlideOfVolumes slide;
  std::int64_t channels;
  PoolDivisor divisor;

  template <int kWidth>
  __device__ void at(std::uint32_t row, std::int64_t column, bool wide) const {
    float sums[kWidth] = {};
    int seen = 0;
    slide.each_pixel(slide.out_place(row), [&](std::int64_t from, int) {
      float values[kWidth];
      load<kWidth>(x + from * channels + column, wide, values);
      ++seen;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sums[k] += values[k];
    });
    const float share = divisor.share(seen);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) sums[k] *= share;
    store<kWidth>(sums, wide, y + row * channels + column);
  }
};

/// Rows: input pixels. Columns: channels.
template <class T>
struct AveragePoolBackward {
  const T* d_y;
  T* d_x;
  SlideOfVolumes slide;
  std::int64_t channels;
  PoolDivisor divisor;

  template <int kWidth>
  __device__ void at(std::uint32_t row, std::int64_t column, bool wide) const {
    float sums[kWidth] = {};
    slide.each_window(slide.in_place(row), [&](std::int64_t out, int) {
      const auto window = slide.out_place(static_cast<std::uint32_t>(out));
      const float share = divisor.share(slide.depth.seen(window.plane) * slide.height.seen(window.row) *
                                        slide.width.seen(window.column));
      float values[kWidth];
      load<kWidth>(d_y + out * channels + column, wide, values);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sums[k] += values[k] * share;
    });
    store<kWidth>(sums, wide, d_x + row * channels + column);
  }
};

/// The same for windows that cover each input pixel exactly once. Rows: output pixels.
template <class T>
struct AverageTilesBackward {
  const T* d_y;
  T* d_x;
  SlideOfVolumes slide;
  std::int64_t channels;
  float share;

  template <int kWidth>
  __device__ void at(std::uint32_t row, std::int64_t column, bool wide) const {
    float values[kWidth];
    load<kWidth>(d_y + row * channels + column, wide, values);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) values[k] *= share;
    slide.each_pixel(slide.out_place(row),
                     [&](std::int64_t in, int) { store<kWidth>(values, wide, d_x + in * channels + column); });
  }
};

/// Pixels whose loads are in flight together.
inline constexpr int kPixelsAtOnce = 8;

/// A linear upsampling on the device: depth, height, width.
struct UpsamplingOnDevice {
  int in[3], out[3], factor[3];
  std::int64_t channels;

  explicit UpsamplingOnDevice(const LinearUpsampling& shape) : channels(shape.in.channels) {
    for (std::size_t i = 0; i < 3; ++i) {
      in[i] = static_cast<int>(shape.in.extents()[i]);
      out[i] = static_cast<int>(shape.out.extents()[i]);
      factor[i] = static_cast<int>(shape.factors()[i]);
    }
  }
  __device__ __forceinline__ formulas::LinearTap tap(int direction, int p) const {
    return formulas::linear_tap(p, factor[direction], in[direction]);
  }
};

/// A pixel of a batch of volumes.
struct VolumePixel {
  std::int64_t image;
  int at[3];
};
__device__ __forceinline__ VolumePixel volume_pixel(std::uint32_t row, const int* extents) {
  const std::uint32_t line = row / static_cast<std::uint32_t>(extents[2]),
                      plane = line / static_cast<std::uint32_t>(extents[1]),
                      image = plane / static_cast<std::uint32_t>(extents[0]);
  return {image,
          {static_cast<int>(plane - image * static_cast<std::uint32_t>(extents[0])),
           static_cast<int>(line - plane * static_cast<std::uint32_t>(extents[1])),
           static_cast<int>(row - line * static_cast<std::uint32_t>(extents[2]))}};
}

/// Rows: output pixels. Columns: channels.
template <class T>
struct UpsampleForward {
  const T* x;
  T* y;
  UpsamplingOnDevice shape;

  template <int kWidth>
  __device__ void at(std::uint32_t row, std::int64_t column, bool wide) const {
    const VolumePixel pixel = volume_pixel(row, shape.out);
    const formulas::LinearTap planes = shape.tap(0, pixel.at[0]), lines = shape.tap(1, pixel.at[1]),
                              columns = shape.tap(2, pixel.at[2]);
    float sums[kWidth] = {};
    for (int h = 0; h < (planes.share > 0 ? 2 : 1); ++h) {
      for (int i = 0; i < (lines.share > 0 ? 2 : 1); ++i) {
        for (int j = 0; j < (columns.share > 0 ? 2 : 1); ++j) {
          const float share = (h == 0 ? 1 - planes.share : planes.share) * (i == 0 ? 1 - lines.share : lines.share) *
                              (j == 0 ? 1 - columns.share : columns.share);
          const std::int64_t plane = pixel.image * shape.in[0] + planes.first + h,
                             line = plane * shape.in[1] + lines.first + i,
                             from = line * shape.in[2] + columns.first + j;
          float values[kWidth];
          load<kWidth>(x + from * shape.channels + column, wide, values);
#pragma unroll
          for (int k = 0; k < kWidth; ++k) sums[k] += share * values[k];
        }
      }
    }
    store<kWidth>(sums, wide, y + row * shape.channels + column);
  }
};

/// Rows: input pixels. Columns: channels.
template <class T>
struct UpsampleBackward {
  const T* d_y;
  T* d_x;
  UpsamplingOnDevice shape;

  template <int kWidth>
  __device__ void at(std::uint32_t row, std::int64_t column, bool wide) const {
    const VolumePixel pixel = volume_pixel(row, shape.in);
    const auto readers = [&](int i) { return formulas::linear_readers(pixel.at[i], shape.factor[i], shape.in[i]); };
    const auto share_of = [&](int i, int p) {
      return formulas::linear_share(pixel.at[i], p, shape.factor[i], shape.in[i]);
    };
    const formulas::LinearReaders planes = readers(0), lines = readers(1), columns = readers(2);
    float sums[kWidth] = {};
    for (int p = planes.begin; p < planes.end; ++p) {
      const float of_plane = share_of(0, p);
      for (int q = lines.begin; q < lines.end; ++q) {
        const float of_line = of_plane * share_of(1, q);
        if (of_line == 0) continue;
        const std::int64_t line = ((pixel.image * shape.out[0] + p) * shape.out[1] + q) * shape.out[2];
        for (int r = columns.begin; r < columns.end; ++r) {
          const float share = of_line * share_of(2, r);
          if (share == 0) continue;
          float values[kWidth];
          load<kWidth>(d_y + (line + r) * shape.channels + column, wide, values);
#pragma unroll
          for (int k = 0; k < kWidth; ++k) sums[k] += share * values[k];
        }
      }
    }
    store<kWidth>(sums, wide, d_x + row * shape.channels + column);
  }
};

/// Rows: images. Columns: channels. Adds the pixels in order.
template <class T>
struct AverageForward {
  const T* x;
  T* y;
  int pixels;
  std::int64_t channels;

  template <int kWidth>
  __device__ void at(std::uint32_t row, std::int64_t column, bool wide) const {
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
  __device__ void at(std::uint32_t row, std::int64_t column, bool wide) const {
    float values[kWidth];
    load<kWidth>(d_y + row / static_cast<std::uint32_t>(pixels) * channels + column, wide, values);
    const auto count = static_cast<float>(pixels);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) values[k] /= count;
    store<kWidth>(values, wide, d_x + row * channels + column);
  }
};

/// Every stride-th pixel of a larger image, with `before` zero channels in front.
struct Subsample {
  int in_height, in_width, out_height, out_width, stride;
  std::int64_t in_channels, out_channels, before;

  /// Returns the pixel of the larger image.
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
  __device__ void at(std::uint32_t row, std::int64_t column, bool wide) const {
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
  __device__ void at(std::uint32_t row, std::int64_t column, bool wide) const {
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
