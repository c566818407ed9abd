/// \file
/// Passes over matrices whose rows are pixels and whose columns are channels (or positions in a window). A thread keeps
/// the values of its columns and iterates over rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

#include "model/cuda/kernels/launch.cuh"
#include "model/cuda/kernels/packs.cuh"
#include "model/cuda/kernels/tiling.hpp"
#include "model/image_operations.hpp"

namespace lockstep::model::cuda {

/// Calls body.at<kWidth>(row, column, wide) for each row of each thread. Threads of a block are arranged in rows of 1
/// << column_bits; each has kWidth columns. A body with state per column returns it from body.columns<kWidth>(column,
/// wide), and receives it as the first argument of at(). Grid: tiles of columns; parts of the rows.
template <int kWidth, class Body>
__global__ void __launch_bounds__(kBlock)
    each_row(Body body, std::uint32_t rows, std::int64_t columns, int column_bits, bool wide) {
  const std::int64_t lane = threadIdx.x & ((1u << column_bits) - 1);
  const std::int64_t column = ((static_cast<std::int64_t>(blockIdx.x) << column_bits) + lane) * kWidth;
  if (column >= columns) return;
  const auto visit = [&](const auto&... state) {
    const std::int64_t rows_of_block = blockDim.x >> column_bits;
    const std::int64_t stride = gridDim.y * rows_of_block;
    for (std::int64_t row = blockIdx.y * rows_of_block + (threadIdx.x >> column_bits); row < rows; row += stride) {
      body.template at<kWidth>(state..., static_cast<std::uint32_t>(row), column, wide);
    }
  };
  if constexpr (requires { body.template columns<kWidth>(column, wide); }) {
    visit(body.template columns<kWidth>(column, wide));
  } else {
    visit();
  }
}

/// Largest grid: threads process one row each up to this size, then several.
inline constexpr std::int64_t kMaxRowBlocks = 4096;

/// Enqueues each_row(). Uses packs of T if `granule`, which divides the length of all runs of neighbouring elements, is
/// a multiple of a pack. wide: memory is aligned for packs. Does nothing for an empty matrix.
template <class T, class Body>
void run_rows(const char* name, cudaStream_t stream, const Body& body, std::int64_t rows, std::int64_t columns,
              std::int64_t granule, bool wide) {
  if (rows == 0 || columns == 0) return;
  if (rows > std::numeric_limits<std::uint32_t>::max()) {
    throw std::invalid_argument(std::string(name) + ": " + std::to_string(rows) + " pixels in one batch");
  }
  const auto run = [&]<int kWidth>() {
    const Tiling tiling = tiling_of(rows, columns, kWidth, kBlock);
    const std::int64_t rows_of_block = kBlock >> tiling.column_bits;
    const std::int64_t most_parts = std::max<std::int64_t>(kMaxRowBlocks / tiling.tiles, 1);
    const auto parts = static_cast<unsigned>(std::min((rows + rows_of_block - 1) / rows_of_block, most_parts));
    launch(name, each_row<kWidth, Body>, {.blocks = tiling.tiles, .parts = parts, .threads = kBlock}, stream, body,
           rows, columns, tiling.column_bits, wide);
  };
  if (granule % kWideWidth<T> == 0) {
    run.template operator()<kWideWidth<T>>();
  } else {
    run.template operator()<1>();
  }
}

/// True if all pointers are aligned for packs of their types, or null.
template <class... T>
bool take_packs(const T*... data) {
  return (takes_packs<kWideWidth<T>>(data) && ...);
}

// ---- pixels and windows ----

/// Position of a pixel, from its row in the matrix.
struct Pixel {
  std::uint32_t image;
  int row, column;
};
__device__ __forceinline__ Pixel pixel_of(std::uint32_t row, int height, int width) {
  const std::uint32_t line = row / static_cast<std::uint32_t>(width);
  const std::uint32_t image = line / static_cast<std::uint32_t>(height);
  return {image, static_cast<int>(line - image * static_cast<std::uint32_t>(height)),
          static_cast<int>(row - line * static_cast<std::uint32_t>(width))};
}
/// Returns the offset of the first element of a pixel.
__device__ __forceinline__ std::int64_t offset_of(std::uint32_t image, int row, int column, int height, int width,
                                                  std::int64_t channels) {
  return ((static_cast<std::int64_t>(image) * height + row) * width + column) * channels;
}

/// A window that slides over images, on the device: along height and width, with one stride and without dilation.
/// SlideOfVolumes handles all other windows.
struct Slide {
  int in_height, in_width, out_height, out_width;
  int window_height, window_width, stride, top, left;

  Slide(const ImageShape& in, const ImageShape& out, const Sliding& window)
      : in_height(static_cast<int>(in.height)),
        in_width(static_cast<int>(in.width)),
        out_height(static_cast<int>(out.height)),
        out_width(static_cast<int>(out.width)),
        window_height(static_cast<int>(window.height.size)),
        window_width(static_cast<int>(window.width.size)),
        stride(static_cast<int>(window.height.stride)),
        top(static_cast<int>(window.height.before)),
        left(static_cast<int>(window.width.before)) {}

  static bool is_for(const ImageShape& in, const Sliding& window) {
    return in.depth == 1 && window.depth == Sweep{} && window.height.dilation == 1 && window.width.dilation == 1 &&
           window.height.stride == window.width.stride;
  }

  /// Calls visit(output row, output column, window row, window column) for every window that contains the input pixel,
  /// in ascending order of window row, then window column.
  template <class Visit>
  __device__ __forceinline__ void each_window(const Pixel& pixel, const Visit& visit) const {
    const int below = (pixel.row + top) / stride, right = (pixel.column + left) / stride;
    const int first_row = (pixel.row + top) % stride, first_column = (pixel.column + left) % stride;
    int row = below;
    for (int i = first_row; i < window_height && row >= 0; i += stride, --row) {
      if (row >= out_height) continue;
      int column = right;
      for (int j = first_column; j < window_width && column >= 0; j += stride, --column) {
        if (column < out_width) visit(row, column, i, j);
      }
    }
  }
};

/// A window along one direction, on the device.
struct SweepOnDevice {
  int in, out;  ///< extents
  int size, stride, dilation, before;

  SweepOnDevice(std::int64_t in_extent, std::int64_t out_extent, const Sweep& sweep)
      : in(static_cast<int>(in_extent)),
        out(static_cast<int>(out_extent)),
        size(static_cast<int>(sweep.size)),
        stride(static_cast<int>(sweep.stride)),
        dilation(static_cast<int>(sweep.dilation)),
        before(static_cast<int>(sweep.before)) {}

  /// Returns the pixel at `position` of a window; it may lie outside.
  __device__ __forceinline__ int source(int window, int position) const {
    return window * stride - before + position * dilation;
  }
  __device__ __forceinline__ bool has(int pixel) const { return pixel >= 0 && pixel < in; }
  /// Returns the number of pixels that a window covers.
  __device__ __forceinline__ int seen(int window) const {
    const int first = source(window, 0), outside = first < 0 ? (dilation - 1 - first) / dilation : 0;
    const int end = (in - 1 - first) / dilation + 1;
    return (end < size ? end : size) - outside;
  }
  /// Calls visit(window, position) for every window that contains the pixel, in ascending order of positions.
  template <class Visit>
  __device__ __forceinline__ void each_window(int pixel, const Visit& visit) const {
#pragma unroll 1  // unrolled, registers spill
    for (int position = 0; position < size; ++position) {
      const int start = pixel + before - position * dilation, window = start / stride;
      if (start >= 0 && window * stride == start && window < out) visit(window, position);
    }
  }
};

/// Any window in up to three directions, on the device. Pixels are numbered through the batch.
struct SlideOfVolumes {
  SweepOnDevice depth, height, width;

  SlideOfVolumes(const ImageShape& in, const ImageShape& out, const Sliding& window)
      : depth(in.depth, out.depth, window.depth),
        height(in.height, out.height, window.height),
        width(in.width, out.width, window.width) {}

  struct Place {
    std::uint32_t image;
    int plane, row, column;
  };
  __device__ static __forceinline__ Place place_of(std::uint32_t pixel, int planes, int rows, int columns) {
    const std::uint32_t line = pixel / static_cast<std::uint32_t>(columns),
                        plane = line / static_cast<std::uint32_t>(rows),
                        image = plane / static_cast<std::uint32_t>(planes);
    return {image, static_cast<int>(plane - image * static_cast<std::uint32_t>(planes)),
            static_cast<int>(line - plane * static_cast<std::uint32_t>(rows)),
            static_cast<int>(pixel - line * static_cast<std::uint32_t>(columns))};
  }
  __device__ __forceinline__ Place in_place(std::uint32_t pixel) const {
    return place_of(pixel, depth.in, height.in, width.in);
  }
  __device__ __forceinline__ Place out_place(std::uint32_t pixel) const {
    return place_of(pixel, depth.out, height.out, width.out);
  }
  /// Returns the number of the input pixel at a position of the window at `out`, or -1 for padding.
  __device__ __forceinline__ std::int64_t source(const Place& out, int h, int i, int j) const {
    const int plane = depth.source(out.plane, h), row = height.source(out.row, i), column = width.source(out.column, j);
    if (!depth.has(plane) || !height.has(row) || !width.has(column)) return -1;
    return ((static_cast<std::int64_t>(out.image) * depth.in + plane) * height.in + row) * width.in + column;
  }
  /// Calls visit(input pixel, position) for every pixel of the window at `out`, in ascending order of positions.
  template <class Visit>
  __device__ __forceinline__ void each_pixel(const Place& out, const Visit& visit) const {
    int position = 0;
#pragma unroll 1
    for (int h = 0; h < depth.size; ++h) {
#pragma unroll 1
      for (int i = 0; i < height.size; ++i) {
#pragma unroll 1
        for (int j = 0; j < width.size; ++j, ++position) {
          const std::int64_t from = source(out, h, i, j);
          if (from >= 0) visit(from, position);
        }
      }
    }
  }
  /// Calls visit(output pixel, position) for every window that contains the input pixel, in ascending order of
  /// positions.
  template <class Visit>
  __device__ __forceinline__ void each_window(const Place& in, const Visit& visit) const {
    depth.each_window(in.plane, [&](int plane, int h) {
      height.each_window(in.row, [&](int row, int i) {
        width.each_window(in.column, [&](int column, int j) {
          visit(((static_cast<std::int64_t>(in.image) * depth.out + plane) * height.out + row) * width.out + column,
                (h * height.size + i) * width.size + j);
        });
      });
    });
  }
};

}  // namespace lockstep::model::cuda
