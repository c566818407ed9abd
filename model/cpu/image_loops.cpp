#include "model/cpu/image_loops.hpp"

#include <algorithm>

#include "model/cpu/channel_lanes.hpp"

namespace lockstep::model::cpu {

namespace {

std::size_t size(std::int64_t extent) { return static_cast<std::size_t>(extent); }

/// The part of [0, extent) that lies in [from, from + length).
struct Clip {
  std::int64_t begin, end;
};
LOCKSTEP_INLINE Clip clip(std::int64_t from, std::int64_t length, std::int64_t extent) {
  return {std::max<std::int64_t>(from, 0), std::min(from + length, extent)};
}
/// The windows, of `windows` windows that begin at -before, that contain pixel `pixel`.
LOCKSTEP_INLINE Clip windows_with(std::int64_t pixel, std::int64_t before, std::int64_t length, std::int64_t stride,
                                  std::int64_t windows) {
  const std::int64_t last = (pixel + before) / stride,
                     beyond = pixel + before - length;  // last window that ended before
  return {beyond < 0 ? 0 : beyond / stride + 1, std::min(last + 1, windows)};
}

/// The pixels of an image inside a window.
struct Seen {
  const float* first;      ///< first channel of the first pixel
  std::size_t row, pixel;  ///< strides in elements
  std::int64_t rows, columns;
  std::int32_t offset, offset_row;  ///< position of the first pixel in the window, and stride of rows
};

/// Channels [c, c + count), count <= kLanes. Loops over plain arrays: GCC 12 keeps these in registers. It splits a
/// comparison of vectors with two selections on its result into sixteen scalar ones.
LOCKSTEP_INLINE void greatest(const Seen& seen, std::size_t c, std::size_t count, float* y, std::uint8_t* chosen) {
  float best[kLanes];
  std::int32_t offset[kLanes];
  for (std::size_t lane = 0; lane < count; ++lane) {
    best[lane] = seen.first[c + lane];
    offset[lane] = seen.offset;
  }
  for (std::int64_t i = 0; i < seen.rows; ++i) {
    for (std::int64_t j = 0; j < seen.columns; ++j) {
      const float* const value = seen.first + size(i) * seen.row + size(j) * seen.pixel + c;
      const std::int32_t here =
          seen.offset + static_cast<std::int32_t>(i) * seen.offset_row + static_cast<std::int32_t>(j);
#pragma GCC unroll 1
      for (std::size_t lane = 0; lane < count; ++lane) {
        // Greater, or the first NaN; a NaN stays.
        const bool keep = (value[lane] <= best[lane]) | (best[lane] != best[lane]);
        best[lane] = keep ? best[lane] : value[lane];
        offset[lane] = keep ? offset[lane] : here;
      }
    }
  }
  for (std::size_t lane = 0; lane < count; ++lane) y[lane] = best[lane];
  for (std::size_t lane = 0; lane < count; ++lane) chosen[lane] = static_cast<std::uint8_t>(offset[lane]);
}

}  // namespace

LOCKSTEP_CLONES void max_pool(const Pool& shape, const float* x, float* y, std::uint8_t* chosen, Slice rows) {
  const Sliding& window = shape.window;
  const std::size_t channels = size(shape.in.channels);
  for (std::size_t row = rows.offset; row < rows.end(); ++row) {
    const std::size_t image = row / size(shape.out.height);
    const float* const from = x + image * size(shape.in.elements());
    const std::int64_t top = static_cast<std::int64_t>(row % size(shape.out.height)) * window.stride - window.top;
    const Clip down = clip(top, window.height, shape.in.height);
    for (std::int64_t column = 0; column < shape.out.width; ++column) {
      const std::int64_t left = column * window.stride - window.left;
      const Clip across = clip(left, window.width, shape.in.width);
      const std::size_t to = (row * size(shape.out.width) + size(column)) * channels;
      const Seen seen{from + size(down.begin * shape.in.width + across.begin) * channels,
                      size(shape.in.width) * channels,
                      channels,
                      down.end - down.begin,
                      across.end - across.begin,
                      static_cast<std::int32_t>((down.begin - top) * window.width + across.begin - left),
                      static_cast<std::int32_t>(window.width)};
      std::size_t c = 0;
      for (; c + kLanes <= channels; c += kLanes) greatest(seen, c, kLanes, y + to + c, chosen + to + c);
      if (c < channels) greatest(seen, c, channels - c, y + to + c, chosen + to + c);
    }
  }
}

LOCKSTEP_CLONES void max_pool_gradient(const Pool& shape, const std::uint8_t* chosen, const float* d_y, float* d_x,
                                       Slice rows) {
  const Sliding& window = shape.window;
  const std::size_t channels = size(shape.in.channels);
  for (std::size_t row = rows.offset; row < rows.end(); ++row) {
    const std::size_t image = row / size(shape.in.height);
    const std::size_t from = image * size(shape.out.elements());
    const auto i = static_cast<std::int64_t>(row % size(shape.in.height));
    const Clip down = windows_with(i, window.top, window.height, window.stride, shape.out.height);
    for (std::int64_t j = 0; j < shape.in.width; ++j) {
      const Clip across = windows_with(j, window.left, window.width, window.stride, shape.out.width);
      float* const to = d_x + (row * size(shape.in.width) + size(j)) * channels;
      for_channels(
          channels, [&](auto whole, std::size_t c, std::size_t count) __attribute__((always_inline)) {
            constexpr bool kWhole = decltype(whole)::value;
            Floats sum{};
            for (std::int64_t p = down.begin; p < down.end; ++p) {
              for (std::int64_t q = across.begin; q < across.end; ++q) {
                const std::size_t at = from + size(p * shape.out.width + q) * channels + c;
                const std::int64_t offset =
                    (i - p * window.stride + window.top) * window.width + j - q * window.stride + window.left;
                Bytes offsets;
                Floats gradient;
                load<kWhole>(offsets, chosen + at, count);
                load<kWhole>(gradient, d_y + at, count);
                const Ints is_chosen = __builtin_convertvector(offsets, Ints) == static_cast<std::int32_t>(offset);
                sum += is_chosen ? gradient : Floats{};
              }
            }
            store<kWhole>(sum, to + c, count);
          });
    }
  }
}

LOCKSTEP_CLONES void global_average(const ImageShape& in, const float* x, float* y, Slice images) {
  const std::size_t channels = size(in.channels), pixels = size(in.pixels());
  const double share = 1 / static_cast<double>(pixels);
  for (std::size_t image = images.offset; image < images.end(); ++image) {
    const float* const from = x + image * pixels * channels;
    for_channels(
        channels, [&](auto whole, std::size_t first, std::size_t all) __attribute__((always_inline)) {
          constexpr bool kWhole = decltype(whole)::value;
          for (std::size_t half = 0; half < 2; ++half) {
            const std::size_t c = first + half * kHalf, count = in_half(all, half);
            Doubles sum{};
            for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
              HalfFloats value;
              load<kWhole>(value, from + pixel * channels + c, count);
              sum += __builtin_convertvector(value, Doubles);
            }
            const HalfFloats mean = __builtin_convertvector(sum * share, HalfFloats);
            store<kWhole>(mean, y + image * channels + c, count);
          }
        });
  }
}

LOCKSTEP_CLONES void global_average_gradient(const ImageShape& in, const float* d_y, float* d_x, Slice images) {
  const std::size_t channels = size(in.channels), pixels = size(in.pixels());
  const float share = 1 / static_cast<float>(pixels);
  for (std::size_t image = images.offset; image < images.end(); ++image) {
    const float* __restrict from = d_y + image * channels;
    for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
      float* __restrict to = d_x + (image * pixels + pixel) * channels;
      for (std::size_t c = 0; c < channels; ++c) to[c] = from[c] * share;
    }
  }
}

LOCKSTEP_CLONES void subsample(const ImageShape& in, const ImageShape& out, std::int64_t stride, const float* x,
                               float* y, Slice images) {
  const std::size_t channels = size(in.channels), wide = size(out.channels), before = (wide - channels) / 2;
  for (std::size_t image = images.offset; image < images.end(); ++image) {
    for (std::int64_t i = 0; i < out.height; ++i) {
      for (std::int64_t j = 0; j < out.width; ++j) {
        const float* const from = x + image * size(in.elements()) + size(i * stride * in.width + j * stride) * channels;
        float* const to = y + image * size(out.elements()) + size(i * out.width + j) * wide;
        std::fill_n(to, before, 0.0f);
        std::copy_n(from, channels, to + before);
        std::fill(to + before + channels, to + wide, 0.0f);
      }
    }
  }
}

LOCKSTEP_CLONES void subsample_gradient(const ImageShape& in, const ImageShape& out, std::int64_t stride,
                                        const float* d_y, float* d_x, Slice images) {
  const std::size_t channels = size(in.channels), wide = size(out.channels), before = (wide - channels) / 2;
  for (std::size_t image = images.offset; image < images.end(); ++image) {
    for (std::int64_t i = 0; i < out.height; ++i) {
      for (std::int64_t j = 0; j < out.width; ++j) {
        const float* __restrict from = d_y + image * size(out.elements()) + size(i * out.width + j) * wide + before;
        float* __restrict to = d_x + image * size(in.elements()) + size(i * stride * in.width + j * stride) * channels;
        for (std::size_t c = 0; c < channels; ++c) to[c] += from[c];
      }
    }
  }
}

}  // namespace lockstep::model::cpu
