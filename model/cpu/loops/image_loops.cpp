#include "model/cpu/loops/image_loops.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "model/cpu/loops/channel_lanes.hpp"

namespace lockstep::model::cpu {

namespace {

std::size_t size(std::int64_t extent) { return static_cast<std::size_t>(extent); }

/// A range of indices.
struct Run {
  std::int64_t begin, end;
};
/// Returns the positions of the window starting at `first` that are pixels in [0, extent).
LOCKSTEP_INLINE Run seen(std::int64_t first, const Sweep& sweep, std::int64_t extent) {
  const std::int64_t before = first < 0 ? (-first + sweep.dilation - 1) / sweep.dilation : 0;
  return {before, std::min((extent - 1 - first) / sweep.dilation + 1, sweep.size)};
}
/// Returns the windows whose reach contains pixel `pixel`. windows: their number.
LOCKSTEP_INLINE Run windows_with(std::int64_t pixel, const Sweep& sweep, std::int64_t windows) {
  const std::int64_t last = (pixel + sweep.before) / sweep.stride,
                     beyond = pixel + sweep.before - sweep.reach();  // last window that ends before the pixel
  return {beyond < 0 ? 0 : beyond / sweep.stride + 1, std::min(last + 1, windows)};
}
/// Returns the position of `pixel` in a window, or -1 if it lies between two positions.
LOCKSTEP_INLINE std::int64_t position_in(std::int64_t window, std::int64_t pixel, const Sweep& sweep) {
  const std::int64_t distance = pixel - window * sweep.stride + sweep.before;
  if (sweep.dilation == 1) return distance;
  return distance % sweep.dilation == 0 ? distance / sweep.dilation : -1;
}

/// Image, plane and row of a row of a batch.
struct Row {
  std::size_t image;
  std::int64_t plane, row;
};
LOCKSTEP_INLINE Row row_of(std::size_t row, const ImageShape& shape) {
  const std::size_t plane = row / size(shape.height), image = plane / size(shape.depth);
  return {image, static_cast<std::int64_t>(plane % size(shape.depth)),
          static_cast<std::int64_t>(row % size(shape.height))};
}

/// True if the windows cover each pixel of one direction exactly once. Loops over such windows need no divisions, which
/// cost more than the pixels if there are few channels.
LOCKSTEP_INLINE bool tiles(const Sweep& sweep, std::int64_t extent, std::int64_t windows) {
  return sweep.dilation == 1 && sweep.before == 0 && sweep.stride == sweep.size && windows * sweep.size == extent;
}
LOCKSTEP_INLINE bool tiles(const Pool& pool) {
  return tiles(pool.window.depth, pool.in.depth, pool.out.depth) &&
         tiles(pool.window.height, pool.in.height, pool.out.height) &&
         tiles(pool.window.width, pool.in.width, pool.out.width);
}

/// The pixels of an image that a window covers.
template <class Element>
struct Seen {
  const Element* first;           ///< first channel of the first pixel
  std::size_t plane, row, pixel;  ///< strides in elements
  std::int64_t planes, rows, columns;
  std::int32_t offset, offset_plane, offset_row;  ///< position of the first pixel in the window, and strides
};

/// Processes channels [c, c + count), count <= kLanes. Uses plain arrays, which GCC 12 keeps in registers; with vectors
/// it would split a comparison with two selections into sixteen scalar ones.
template <class X, class Y>
LOCKSTEP_INLINE void greatest(const Seen<X>& seen, std::size_t c, std::size_t count, Y* y, std::uint8_t* chosen) {
  float best[kLanes];
  std::int32_t offset[kLanes];
  for (std::size_t lane = 0; lane < count; ++lane) {
    best[lane] = number_of(seen.first[c + lane]);
    offset[lane] = seen.offset;
  }
  for (std::int64_t h = 0; h < seen.planes; ++h) {
    for (std::int64_t i = 0; i < seen.rows; ++i) {
      for (std::int64_t j = 0; j < seen.columns; ++j) {
        const X* const values = seen.first + size(h) * seen.plane + size(i) * seen.row + size(j) * seen.pixel + c;
        const std::int32_t here = seen.offset + static_cast<std::int32_t>(h) * seen.offset_plane +
                                  static_cast<std::int32_t>(i) * seen.offset_row + static_cast<std::int32_t>(j);
#pragma GCC unroll 1
        for (std::size_t lane = 0; lane < count; ++lane) {
          // Takes the value if it is greater or the first NaN.
          const float value = number_of(values[lane]);
          const bool keep = (value <= best[lane]) | (best[lane] != best[lane]);
          best[lane] = keep ? best[lane] : value;
          offset[lane] = keep ? offset[lane] : here;
        }
      }
    }
  }
  if constexpr (std::is_same_v<Y, float>) {
    std::memcpy(y, best, count * sizeof(float));  // GCC would turn a loop into sixteen scalar loads
  } else {
    for (std::size_t lane = 0; lane < count; ++lane) put(best[lane], y[lane]);
  }
  for (std::size_t lane = 0; lane < count; ++lane) chosen[lane] = static_cast<std::uint8_t>(offset[lane]);
}

/// The same with vectors.
template <bool kWhole, class X, class Y>
LOCKSTEP_INLINE void greatest_natively(const Seen<X>& seen, std::size_t c, std::size_t count, Y* y,
                                       std::uint8_t* chosen) {
  Floats best;
  load<kWhole>(best, seen.first + c, count);
  Ints offset = Ints{} + seen.offset;
  for (std::int64_t h = 0; h < seen.planes; ++h) {
    for (std::int64_t i = 0; i < seen.rows; ++i) {
      for (std::int64_t j = 0; j < seen.columns; ++j) {
        Floats value;
        load<kWhole>(value, seen.first + size(h) * seen.plane + size(i) * seen.row + size(j) * seen.pixel + c, count);
        const Ints here = Ints{} + (seen.offset + static_cast<std::int32_t>(h) * seen.offset_plane +
                                    static_cast<std::int32_t>(i) * seen.offset_row + static_cast<std::int32_t>(j));
        take_greater_natively(value, here, best, offset);
      }
    }
  }
  store<kWhole>(best, y + c, count);
  Bytes bytes;
  narrow_natively(offset, bytes);
  std::memcpy(chosen + c, &bytes, kWhole ? sizeof(bytes) : count);
}

/// All channels of a window.
template <class X, class Y>
LOCKSTEP_INLINE void greatest_of_channels(const Seen<X>& pixels, std::size_t channels, Y* y, std::uint8_t* chosen) {
  if constexpr (std::is_same_v<X, NativeBf16> || std::is_same_v<Y, NativeBf16>) {
    return for_channels(
        channels, [&](auto whole, std::size_t c, std::size_t count) __attribute__((always_inline)) {
          greatest_natively<decltype(whole)::value>(pixels, c, count, y, chosen);
        });
  }
  std::size_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) greatest(pixels, c, kLanes, y + c, chosen + c);
  if (c < channels) greatest(pixels, c, channels - c, y + c, chosen + c);
}

template <class X, class Y>
LOCKSTEP_INLINE void max_of_windows(const Pool& shape, const X* x, Y* y, std::uint8_t* chosen, Slice rows) {
  const Sweep &depth = shape.window.depth, &height = shape.window.height, &width = shape.window.width;
  const std::size_t channels = size(shape.in.channels), line = size(shape.in.width) * channels,
                    plane = size(shape.in.height) * line;
  const bool is_tiled = tiles(shape);
  for (std::size_t row = rows.offset; row < rows.end(); ++row) {
    const Row at = row_of(row, shape.out);
    const X* const from = x + at.image * size(shape.in.elements());
    const std::int64_t front = at.plane * depth.stride - depth.before, top = at.row * height.stride - height.before;
    if (is_tiled) {
      Seen<X> pixels{from + size(front) * plane + size(top) * line,
                     plane,
                     line,
                     channels,
                     depth.size,
                     height.size,
                     width.size,
                     0,
                     static_cast<std::int32_t>(height.size * width.size),
                     static_cast<std::int32_t>(width.size)};
      std::size_t to = row * size(shape.out.width) * channels;
      for (std::int64_t column = 0; column < shape.out.width; ++column) {
        greatest_of_channels(pixels, channels, y + to, chosen + to);
        pixels.first += size(width.size) * channels;
        to += channels;
      }
      continue;
    }
    const Run in = seen(front, depth, shape.in.depth), down = seen(top, height, shape.in.height);
    for (std::int64_t column = 0; column < shape.out.width; ++column) {
      const std::int64_t left = column * width.stride - width.before;
      const Run across = seen(left, width, shape.in.width);
      const std::size_t to = (row * size(shape.out.width) + size(column)) * channels;
      const Seen<X> pixels{from + size(front + in.begin * depth.dilation) * plane +
                               size(top + down.begin * height.dilation) * line +
                               size(left + across.begin * width.dilation) * channels,
                           size(depth.dilation) * plane,
                           size(height.dilation) * line,
                           size(width.dilation) * channels,
                           in.end - in.begin,
                           down.end - down.begin,
                           across.end - across.begin,
                           static_cast<std::int32_t>((in.begin * height.size + down.begin) * width.size + across.begin),
                           static_cast<std::int32_t>(height.size * width.size),
                           static_cast<std::int32_t>(width.size)};
      greatest_of_channels(pixels, channels, y + to, chosen + to);
    }
  }
}

/// Loads the chosen positions of `count` channels, for a pass from images of A to images of B.
template <bool kWhole, class A, class B>
LOCKSTEP_INLINE void positions_of(const std::uint8_t* chosen, std::size_t count, Ints& positions) {
  Bytes bytes;
  load<kWhole>(bytes, chosen, count);
  if constexpr (std::is_same_v<A, NativeBf16> || std::is_same_v<B, NativeBf16>) {
    widen_natively(bytes, positions);
  } else {
    positions = __builtin_convertvector(__builtin_convertvector(bytes, Shorts), Ints);
  }
}

/// max_pool_gradient() for windows that tile the image: row `at` of d_x.
template <class Y, class X>
LOCKSTEP_INLINE void tiled_max_gradient(const Pool& shape, const std::uint8_t* chosen, const Y* d_y, const Row& at,
                                        X* d_x) {
  const Sweep &depth = shape.window.depth, &height = shape.window.height;
  const std::size_t channels = size(shape.in.channels), width = size(shape.window.width.size);
  const std::int64_t plane = at.plane / depth.size, line = at.row / height.size;
  const auto first = static_cast<std::int32_t>(
      ((at.plane - plane * depth.size) * height.size + at.row - line * height.size) * shape.window.width.size);
  std::size_t window =
      at.image * size(shape.out.elements()) + size((plane * shape.out.height + line) * shape.out.width) * channels;
  for (std::int64_t column = 0; column < shape.out.width; ++column) {
    for_channels(
        channels, [&](auto whole, std::size_t c, std::size_t count) __attribute__((always_inline)) {
          constexpr bool kWhole = decltype(whole)::value;
          Ints position;
          Floats gradient;
          positions_of<kWhole, Y, X>(chosen + window + c, count, position);
          load<kWhole>(gradient, d_y + window + c, count);
          position -= first;
          for (std::size_t j = 0; j < width; ++j) {
            const Ints is_chosen = position == static_cast<std::int32_t>(j);
            const Floats sum = Floats{} + (is_chosen ? gradient : Floats{});  // 0 + x turns -0 into 0
            store<kWhole>(sum, d_x + j * channels + c, count);
          }
        });
    window += channels;
    d_x += width * channels;
  }
}

template <class Y, class X>
LOCKSTEP_INLINE void max_gradient_of_rows(const Pool& shape, const std::uint8_t* chosen, const Y* d_y, X* d_x,
                                          Slice rows) {
  const Sweep &depth = shape.window.depth, &height = shape.window.height, &width = shape.window.width;
  const std::size_t channels = size(shape.in.channels);
  const bool is_tiled = tiles(shape);
  for (std::size_t row = rows.offset; row < rows.end(); ++row) {
    const Row at = row_of(row, shape.in);
    if (is_tiled) {
      tiled_max_gradient(shape, chosen, d_y, at, d_x + row * size(shape.in.width) * channels);
      continue;
    }
    const std::size_t from = at.image * size(shape.out.elements());
    const Run in = windows_with(at.plane, depth, shape.out.depth),
              down = windows_with(at.row, height, shape.out.height);
    for (std::int64_t j = 0; j < shape.in.width; ++j) {
      const Run across = windows_with(j, width, shape.out.width);
      X* const to = d_x + (row * size(shape.in.width) + size(j)) * channels;
      for_channels(
          channels, [&](auto whole, std::size_t c, std::size_t count) __attribute__((always_inline)) {
            constexpr bool kWhole = decltype(whole)::value;
            Floats sum{};
            for (std::int64_t o = in.begin; o < in.end; ++o) {
              const std::int64_t plane = position_in(o, at.plane, depth);
              if (plane < 0) continue;
              for (std::int64_t p = down.begin; p < down.end; ++p) {
                const std::int64_t line = position_in(p, at.row, height);
                if (line < 0) continue;
                for (std::int64_t q = across.begin; q < across.end; ++q) {
                  const std::int64_t position = position_in(q, j, width);
                  if (position < 0) continue;
                  const std::size_t window =
                      from + size((o * shape.out.height + p) * shape.out.width + q) * channels + c;
                  Ints offsets;
                  Floats gradient;
                  positions_of<kWhole, Y, X>(chosen + window, count, offsets);
                  load<kWhole>(gradient, d_y + window, count);
                  const Ints is_chosen =
                      offsets == static_cast<std::int32_t>((plane * height.size + line) * width.size + position);
                  sum += is_chosen ? gradient : Floats{};
                }
              }
            }
            store<kWhole>(sum, to + c, count);
          });
    }
  }
}

/// Returns 1 / divisor of a window that covers this many pixels.
LOCKSTEP_INLINE float share_of(const AveragePool& shape, std::int64_t pixels) {
  if (shape.divisor == AveragePool::Divisor::one) return 1;
  return 1 / static_cast<float>(shape.divisor == AveragePool::Divisor::seen ? pixels : shape.pool.window.positions());
}
LOCKSTEP_INLINE std::int64_t length(const Run& run) { return run.end - run.begin; }
/// Returns the pixels that window number `window` covers along one direction.
LOCKSTEP_INLINE std::int64_t seen_by(std::int64_t window, const Sweep& sweep, std::int64_t extent) {
  return length(seen(window * sweep.stride - sweep.before, sweep, extent));
}

/// average_pool() for windows that tile the image: row `at` of y.
template <class X, class Y>
LOCKSTEP_INLINE void tiled_mean(const AveragePool& shape, const X* x, const Row& at, Y* y) {
  const ImageShape &in = shape.pool.in, &out = shape.pool.out;
  const Sliding& window = shape.pool.window;
  const std::size_t channels = size(in.channels), line = size(in.width) * channels, plane = size(in.height) * line,
                    planes = size(window.depth.size), lines = size(window.height.size), width = size(window.width.size);
  const float share = share_of(shape, window.positions());
  const X* from = x + at.image * size(in.elements()) + size(at.plane) * planes * plane + size(at.row) * lines * line;
  for (std::int64_t column = 0; column < out.width; ++column) {
    for_channels(
        channels, [&](auto whole, std::size_t c, std::size_t count) __attribute__((always_inline)) {
          constexpr bool kWhole = decltype(whole)::value;
          Floats sum{};
          for (std::size_t h = 0; h < planes; ++h) {
            for (std::size_t i = 0; i < lines; ++i) {
              for (std::size_t j = 0; j < width; ++j) {
                Floats value;
                load<kWhole>(value, from + h * plane + i * line + j * channels + c, count);
                sum += value;
              }
            }
          }
          sum *= share;
          store<kWhole>(sum, y + c, count);
        });
    from += width * channels;
    y += channels;
  }
}

/// average_pool_gradient() for windows that tile the image: row `at` of d_x.
template <class Y, class X>
LOCKSTEP_INLINE void tiled_mean_gradient(const AveragePool& shape, const Y* d_y, const Row& at, X* d_x) {
  const ImageShape& out = shape.pool.out;
  const Sliding& window = shape.pool.window;
  const std::size_t channels = size(out.channels), width = size(window.width.size);
  const float share = share_of(shape, window.positions());
  const std::int64_t plane = at.plane / window.depth.size, line = at.row / window.height.size;
  const Y* from = d_y + at.image * size(out.elements()) + size((plane * out.height + line) * out.width) * channels;
  for (std::int64_t column = 0; column < out.width; ++column) {
    for_channels(
        channels, [&](auto whole, std::size_t c, std::size_t count) __attribute__((always_inline)) {
          constexpr bool kWhole = decltype(whole)::value;
          Floats gradient;
          load<kWhole>(gradient, from + c, count);
          gradient = Floats{} + gradient * share;  // 0 + x turns -0 into 0
          for (std::size_t j = 0; j < width; ++j) store<kWhole>(gradient, d_x + j * channels + c, count);
        });
    from += channels;
    d_x += width * channels;
  }
}

template <class X, class Y>
LOCKSTEP_INLINE void means_of_windows(const AveragePool& shape, const X* x, Y* y, Slice rows) {
  const ImageShape &from_shape = shape.pool.in, &to_shape = shape.pool.out;
  const Sweep &depth = shape.pool.window.depth, &height = shape.pool.window.height, &width = shape.pool.window.width;
  const std::size_t channels = size(from_shape.channels), line = size(from_shape.width) * channels,
                    plane = size(from_shape.height) * line;
  const bool is_tiled = tiles(shape.pool);
  for (std::size_t row = rows.offset; row < rows.end(); ++row) {
    const Row at = row_of(row, to_shape);
    if (is_tiled) {
      tiled_mean(shape, x, at, y + row * size(to_shape.width) * channels);
      continue;
    }
    const X* const from = x + at.image * size(from_shape.elements());
    const std::int64_t front = at.plane * depth.stride - depth.before, top = at.row * height.stride - height.before;
    const Run in = seen(front, depth, from_shape.depth), down = seen(top, height, from_shape.height);
    for (std::int64_t column = 0; column < to_shape.width; ++column) {
      const std::int64_t left = column * width.stride - width.before;
      const Run across = seen(left, width, from_shape.width);
      const float share = share_of(shape, length(in) * length(down) * length(across));
      Y* const to = y + (row * size(to_shape.width) + size(column)) * channels;
      for_channels(
          channels, [&](auto whole, std::size_t c, std::size_t count) __attribute__((always_inline)) {
            constexpr bool kWhole = decltype(whole)::value;
            Floats sum{};
            for (std::int64_t h = in.begin; h < in.end; ++h) {
              for (std::int64_t i = down.begin; i < down.end; ++i) {
                const X* const first =
                    from + size(front + h * depth.dilation) * plane + size(top + i * height.dilation) * line + c;
                for (std::int64_t j = across.begin; j < across.end; ++j) {
                  Floats value;
                  load<kWhole>(value, first + size(left + j * width.dilation) * channels, count);
                  sum += value;
                }
              }
            }
            sum *= share;
            store<kWhole>(sum, to + c, count);
          });
    }
  }
}

template <class Y, class X>
LOCKSTEP_INLINE void mean_gradient_of_rows(const AveragePool& shape, const Y* d_y, X* d_x, Slice rows) {
  const ImageShape &to_shape = shape.pool.in, &from_shape = shape.pool.out;
  const Sweep &depth = shape.pool.window.depth, &height = shape.pool.window.height, &width = shape.pool.window.width;
  const std::size_t channels = size(to_shape.channels);
  const bool is_tiled = tiles(shape.pool);
  for (std::size_t row = rows.offset; row < rows.end(); ++row) {
    const Row at = row_of(row, to_shape);
    if (is_tiled) {
      tiled_mean_gradient(shape, d_y, at, d_x + row * size(to_shape.width) * channels);
      continue;
    }
    const std::size_t from = at.image * size(from_shape.elements());
    const Run in = windows_with(at.plane, depth, from_shape.depth),
              down = windows_with(at.row, height, from_shape.height);
    for (std::int64_t j = 0; j < to_shape.width; ++j) {
      const Run across = windows_with(j, width, from_shape.width);
      X* const to = d_x + (row * size(to_shape.width) + size(j)) * channels;
      for_channels(
          channels, [&](auto whole, std::size_t c, std::size_t count) __attribute__((always_inline)) {
            constexpr bool kWhole = decltype(whole)::value;
            Floats sum{};
            for (std::int64_t o = in.begin; o < in.end; ++o) {
              if (position_in(o, at.plane, depth) < 0) continue;
              const std::int64_t planes = seen_by(o, depth, to_shape.depth);
              for (std::int64_t p = down.begin; p < down.end; ++p) {
                if (position_in(p, at.row, height) < 0) continue;
                const std::int64_t lines = planes * seen_by(p, height, to_shape.height);
                for (std::int64_t q = across.begin; q < across.end; ++q) {
                  if (position_in(q, j, width) < 0) continue;
                  Floats gradient;
                  load<kWhole>(gradient,
                               d_y + from + size((o * from_shape.height + p) * from_shape.width + q) * channels + c,
                               count);
                  sum += gradient * share_of(shape, lines * seen_by(q, width, to_shape.width));
                }
              }
            }
            store<kWhole>(sum, to + c, count);
          });
    }
  }
}

template <class X, class Y>
LOCKSTEP_INLINE void means_of_images(const ImageShape& in, const X* x, Y* y, Slice images) {
  const std::size_t channels = size(in.channels), pixels = size(in.pixels());
  const double share = 1 / static_cast<double>(pixels);
  for (std::size_t image = images.offset; image < images.end(); ++image) {
    const X* const from = x + image * pixels * channels;
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

template <class Y, class X>
LOCKSTEP_INLINE void mean_gradient_of_images(const ImageShape& in, const Y* d_y, X* d_x, Slice images) {
  const std::size_t channels = size(in.channels), pixels = size(in.pixels());
  const float share = 1 / static_cast<float>(pixels);
  for (std::size_t image = images.offset; image < images.end(); ++image) {
    const Y* __restrict from = d_y + image * channels;
    for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
      X* __restrict to = d_x + (image * pixels + pixel) * channels;
      for (std::size_t c = 0; c < channels; ++c) put(number_of(from[c]) * share, to[c]);
    }
  }
}

template <class Element>
LOCKSTEP_INLINE void subsample_images(const ImageShape& in, const ImageShape& out, std::int64_t stride,
                                      const Element* x, Element* y, Slice images) {
  const std::size_t channels = size(in.channels), wide = size(out.channels), before = (wide - channels) / 2;
  for (std::size_t image = images.offset; image < images.end(); ++image) {
    for (std::int64_t i = 0; i < out.height; ++i) {
      for (std::int64_t j = 0; j < out.width; ++j) {
        const Element* const from =
            x + image * size(in.elements()) + size(i * stride * in.width + j * stride) * channels;
        Element* const to = y + image * size(out.elements()) + size(i * out.width + j) * wide;
        std::fill_n(to, before, Element{});
        std::copy_n(from, channels, to + before);
        std::fill(to + before + channels, to + wide, Element{});
      }
    }
  }
}

template <class Element>
LOCKSTEP_INLINE void add_subsampled(const ImageShape& in, const ImageShape& out, std::int64_t stride,
                                    const Element* d_y, Element* d_x, Slice images) {
  const std::size_t channels = size(in.channels), wide = size(out.channels), before = (wide - channels) / 2;
  for (std::size_t image = images.offset; image < images.end(); ++image) {
    for (std::int64_t i = 0; i < out.height; ++i) {
      for (std::int64_t j = 0; j < out.width; ++j) {
        const Element* __restrict from = d_y + image * size(out.elements()) + size(i * out.width + j) * wide + before;
        Element* __restrict to =
            d_x + image * size(in.elements()) + size(i * stride * in.width + j * stride) * channels;
        for (std::size_t c = 0; c < channels; ++c) put(number_of(to[c]) + number_of(from[c]), to[c]);
      }
    }
  }
}

}  // namespace

LOCKSTEP_CLONES void max_pool_widening(const Pool& shape, const Tensor& x, const Tensor& y, std::uint8_t* chosen,
                                       Slice rows) {
  with_elements<Bf16>(
      x,
      y, [&](auto* from, auto* to) __attribute__((always_inline)) { max_of_windows(shape, from, to, chosen, rows); });
}
LOCKSTEP_TARGET(LOCKSTEP_ROUNDING_SET)
void max_pool_natively(const Pool& shape, const Tensor& x, const Tensor& y, std::uint8_t* chosen, Slice rows) {
  with_elements<NativeBf16>(
      x,
      y, [&](auto* from, auto* to) __attribute__((always_inline)) { max_of_windows(shape, from, to, chosen, rows); });
}
void max_pool(const Pool& shape, const Tensor& x, const Tensor& y, std::uint8_t* chosen, Slice rows) {
  (widens_natively(x, y) ? max_pool_natively : max_pool_widening)(shape, x, y, chosen, rows);
}

LOCKSTEP_CLONES void max_pool_gradient_widening(const Pool& shape, const std::uint8_t* chosen, const Tensor& d_y,
                                                const Tensor& d_x, Slice rows) {
  with_elements<Bf16>(
      d_y, d_x, [&](auto* from, auto* to) __attribute__((always_inline)) {
        max_gradient_of_rows(shape, chosen, from, to, rows);
      });
}
LOCKSTEP_TARGET(LOCKSTEP_ROUNDING_SET)
void max_pool_gradient_natively(const Pool& shape, const std::uint8_t* chosen, const Tensor& d_y, const Tensor& d_x,
                                Slice rows) {
  with_elements<NativeBf16>(
      d_y, d_x, [&](auto* from, auto* to) __attribute__((always_inline)) {
        max_gradient_of_rows(shape, chosen, from, to, rows);
      });
}
void max_pool_gradient(const Pool& shape, const std::uint8_t* chosen, const Tensor& d_y, const Tensor& d_x,
                       Slice rows) {
  (widens_natively(d_y, d_x) ? max_pool_gradient_natively : max_pool_gradient_widening)(shape, chosen, d_y, d_x, rows);
}

LOCKSTEP_CLONES void average_pool_widening(const AveragePool& shape, const Tensor& x, const Tensor& y, Slice rows) {
  with_elements<Bf16>(
      x, y, [&](auto* from, auto* to) __attribute__((always_inline)) { means_of_windows(shape, from, to, rows); });
}
LOCKSTEP_TARGET(LOCKSTEP_ROUNDING_SET)
void average_pool_natively(const AveragePool& shape, const Tensor& x, const Tensor& y, Slice rows) {
  with_elements<NativeBf16>(
      x, y, [&](auto* from, auto* to) __attribute__((always_inline)) { means_of_windows(shape, from, to, rows); });
}
void average_pool(const AveragePool& shape, const Tensor& x, const Tensor& y, Slice rows) {
  (widens_natively(x, y) ? average_pool_natively : average_pool_widening)(shape, x, y, rows);
}

LOCKSTEP_CLONES void average_pool_gradient_widening(const AveragePool& shape, const Tensor& d_y, const Tensor& d_x,
                                                    Slice rows) {
  with_elements<Bf16>(
      d_y,
      d_x, [&](auto* from, auto* to) __attribute__((always_inline)) { mean_gradient_of_rows(shape, from, to, rows); });
}
LOCKSTEP_TARGET(LOCKSTEP_ROUNDING_SET)
void average_pool_gradient_natively(const AveragePool& shape, const Tensor& d_y, const Tensor& d_x, Slice rows) {
  with_elements<NativeBf16>(
      d_y,
      d_x, [&](auto* from, auto* to) __attribute__((always_inline)) { mean_gradient_of_rows(shape, from, to, rows); });
}
void average_pool_gradient(const AveragePool& shape, const Tensor& d_y, const Tensor& d_x, Slice rows) {
  (widens_natively(d_y, d_x) ? average_pool_gradient_natively : average_pool_gradient_widening)(shape, d_y, d_x, rows);
}

LOCKSTEP_CLONES void global_average(const ImageShape& in, const Tensor& x, const Tensor& y, Slice images) {
  with_elements(
      x, y, [&](auto* from, auto* to) __attribute__((always_inline)) { means_of_images(in, from, to, images); });
}

LOCKSTEP_CLONES void global_average_gradient(const ImageShape& in, const Tensor& d_y, const Tensor& d_x, Slice images) {
  with_elements(
      d_y,
      d_x, [&](auto* from, auto* to) __attribute__((always_inline)) { mean_gradient_of_images(in, from, to, images); });
}

LOCKSTEP_CLONES void subsample(const ImageShape& in, const ImageShape& out, std::int64_t stride, const Tensor& x,
                               const Tensor& y, Slice images) {
  with_elements(
      x, [&](auto* from) __attribute__((always_inline)) {
        subsample_images(in, out, stride, from, static_cast<decltype(from)>(y.data), images);
      });
}

LOCKSTEP_CLONES void subsample_gradient(const ImageShape& in, const ImageShape& out, std::int64_t stride,
                                        const Tensor& d_y, const Tensor& d_x, Slice images) {
  with_elements(
      d_y, [&](auto* from) __attribute__((always_inline)) {
        add_subsampled(in, out, stride, from, static_cast<decltype(from)>(d_x.data), images);
      });
}

LOCKSTEP_CLONES void global_max(const ImageShape& in, const float* x, float* y, Slice images) {
  const std::size_t channels = size(in.channels), pixels = size(in.pixels());
  for (std::size_t image = images.offset; image < images.end(); ++image) {
    const float* from = x + image * pixels * channels;
    float* __restrict to = y + image * channels;
    std::copy_n(from, channels, to);
    for (std::size_t pixel = 1; pixel < pixels; ++pixel) {
      from += channels;
      const float* __restrict value = from;
      for (std::size_t c = 0; c < channels; ++c) {
        const bool keep = (value[c] <= to[c]) | (to[c] != to[c]);
        to[c] = keep ? to[c] : value[c];
      }
    }
  }
}

LOCKSTEP_CLONES void global_max_gradient(const ImageShape& in, const float* x, const float* y, const float* d_y,
                                         float* d_x, Slice images) {
  const std::size_t channels = size(in.channels), pixels = size(in.pixels());
  for (std::size_t image = images.offset; image < images.end(); ++image) {
    const float* const value = x + image * pixels * channels;
    float* const to = d_x + image * pixels * channels;
    std::fill_n(to, pixels * channels, 0.0f);
    for (std::size_t c = 0; c < channels; ++c) {
      const float greatest = y[image * channels + c];
      std::size_t pixel = 0;
      while (pixel + 1 < pixels && value[pixel * channels + c] != greatest &&
             (greatest == greatest || value[pixel * channels + c] == value[pixel * channels + c])) {
        ++pixel;
      }
      to[pixel * channels + c] = d_y[image * channels + c];
    }
  }
}

}  // namespace lockstep::model::cpu
