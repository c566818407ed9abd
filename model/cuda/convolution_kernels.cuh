/// \file
/// Converts images to matrices of patches, and back.
#pragma once

#include <algorithm>
#include <cstdint>

#include "model/cuda/row_passes.cuh"

namespace lockstep::model::cuda {

/// Rows: output pixels. Columns: positions in the window, channels fastest.
template <class T>
struct GatherPatches {
  const T* x;
  T* patches;
  Slide slide;
  std::int64_t channels, patch;  ///< patch: columns of a row

  struct Position {
    int row, column;  ///< position in the image of the window's first pixel
    int channel;
  };
  template <int kWidth>
  __device__ Position columns(std::int64_t column, bool) const {
    const auto position = static_cast<int>(column / channels);
    return {position / slide.window_width - slide.top, position % slide.window_width - slide.left,
            static_cast<int>(column - position * channels)};
  }
  template <int kWidth>
  __device__ void at(const Position& position, std::uint32_t row, std::int64_t column, bool wide) const {
    const Pixel pixel = pixel_of(row, slide.out_height, slide.out_width);
    const int h = pixel.row * slide.stride + position.row, w = pixel.column * slide.stride + position.column;
    Pack<T, kWidth> pack{};
    if (h >= 0 && h < slide.in_height && w >= 0 && w < slide.in_width) {
      pack = load_pack<kWidth>(
          x + offset_of(pixel.image, h, w, slide.in_height, slide.in_width, channels) + position.channel, wide);
    }
    store_pack(pack, wide, patches + row * patch + column);
  }
};

/// Fills rows that are longer than a patch with zeros. A pack may begin and end within a pixel's channels: its elements
/// are gathered one by one and stored at once.
template <class T>
struct GatherPaddedPatches {
  GatherPatches<T> of;
  std::int64_t elements;  ///< elements of a patch

  template <int kWidth>
  struct Positions {
    typename GatherPatches<T>::Position of[kWidth];
  };
  template <int kWidth>
  __device__ Positions<kWidth> columns(std::int64_t column, bool wide) const {
    Positions<kWidth> positions;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      positions.of[k] = of.template columns<1>(column + k, wide);
      if (column + k >= elements) positions.of[k].row = -of.slide.in_height - of.slide.out_height * of.slide.stride;
    }
    return positions;
  }
  template <int kWidth>
  __device__ void at(const Positions<kWidth>& positions, std::uint32_t row, std::int64_t column, bool wide) const {
    const Slide& slide = of.slide;
    const Pixel pixel = pixel_of(row, slide.out_height, slide.out_width);
    Pack<T, kWidth> pack;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const auto& position = positions.of[k];
      const int h = pixel.row * slide.stride + position.row, w = pixel.column * slide.stride + position.column;
      const bool inside = h >= 0 && h < slide.in_height && w >= 0 && w < slide.in_width;
      pack.values[k] =
          inside ? of.x[offset_of(pixel.image, h, w, slide.in_height, slide.in_width, of.channels) + position.channel]
                 : static_cast<T>(0.0f);
    }
    store_pack(pack, wide, of.patches + row * of.patch + column);
  }
};

/// Pixels of images that contribute to the patches of a segment of an output row: one row of the window after the
/// other.
template <class T>
struct PatchSource {
  static constexpr int kElements = (16 << 10) / static_cast<int>(sizeof(T));
  T values[kElements];  ///< the last one is 0
};

/// Division of output rows into segments for gather_patch_rows().
struct PatchSegments {
  int pixels = 0;      ///< pixels of a segment; 0: this kernel cannot run it
  int of_row = 0;      ///< segments of an output row
  int row_length = 0;  ///< elements of an image's row that a segment reads
};
template <class T>
PatchSegments patch_segments(const Slide& slide, std::int64_t channels, std::int64_t columns) {
  const std::int64_t packs = columns / kWideWidth<T>;
  const std::int64_t of_row = (PatchSource<T>::kElements - 1) / (slide.window_height * channels);  // pixels
  if (packs > kBlock || of_row < slide.window_width) return {};
  const auto fitting = static_cast<int>((of_row - slide.window_width) / slide.stride) + 1;
  const int pixels = std::min(fitting, slide.out_width);
  return {pixels, (slide.out_width + pixels - 1) / pixels,
          ((pixels - 1) * slide.stride + slide.window_width) * static_cast<int>(channels)};
}

/// GatherPaddedPatches through shared memory: a block reads the pixels of a segment once, row by row. Each of its
/// threads takes one pack of the columns and goes over the segment's pixels. Neighbouring threads write neighbouring
/// packs.
template <class T>
__global__ void __launch_bounds__(kBlock)
    gather_patch_rows(GatherPaddedPatches<T> body, PatchSegments segments, std::int64_t count, bool wide) {
  constexpr int kWidth = kWideWidth<T>, kZero = PatchSource<T>::kElements - 1;
  auto& source = shared<PatchSource<T>>();
  const GatherPatches<T>& of = body.of;
  const Slide& slide = of.slide;
  const int channels = static_cast<int>(of.channels), thread = static_cast<int>(threadIdx.x);
  const int packs = static_cast<int>(of.patch) / kWidth, together = static_cast<int>(kBlock) / packs;
  const int first_pixel = thread / packs, first_column = thread % packs * kWidth;
  int positions[kWidth], steps[kWidth];
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    const int column = first_column + k, run = slide.window_width * channels, row = column / run;
    const bool there = column < static_cast<int>(body.elements);
    positions[k] =
        there ? row * segments.row_length + column - row * run + first_pixel * slide.stride * channels : kZero;
    steps[k] = there ? together * slide.stride * channels : 0;
  }
  if (thread == 0) source.values[kZero] = static_cast<T>(0.0f);
  for (std::int64_t segment = blockIdx.x; segment < count; segment += gridDim.x) {
    const std::int64_t out_row = segment / segments.of_row, image = out_row / slide.out_height;
    const int before = static_cast<int>(segment - out_row * segments.of_row) * segments.pixels;
    const int top = static_cast<int>(out_row - image * slide.out_height) * slide.stride - slide.top;
    const int left = (before * slide.stride - slide.left) * channels, width = slide.in_width * channels;
    __syncthreads();  // the preceding segment has been read
    for (int i = 0; i < slide.window_height; ++i) {
      const int h = top + i;
      const T* const from = of.x + (image * slide.in_height + h) * width;
      for (int e = thread; e < segments.row_length; e += static_cast<int>(kBlock)) {
        const bool inside = h >= 0 && h < slide.in_height && left + e >= 0 && left + e < width;
        source.values[i * segments.row_length + e] = inside ? from[left + e] : static_cast<T>(0.0f);
      }
    }
    __syncthreads();
    if (first_pixel >= together) continue;
    const int left_over = slide.out_width - before, pixels = left_over < segments.pixels ? left_over : segments.pixels;
    T* to = of.patches + (out_row * slide.out_width + before + first_pixel) * of.patch + first_column;
    int here[kWidth];
#pragma unroll
    for (int k = 0; k < kWidth; ++k) here[k] = positions[k];
    for (int pixel = first_pixel; pixel < pixels; pixel += together) {
      Pack<T, kWidth> pack;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        pack.values[k] = source.values[here[k]];
        here[k] += steps[k];
      }
      store_pack(pack, wide, to);
      to += together * of.patch;
    }
  }
}

/// Rows: input pixels. Columns: channels.
template <class T>
struct AddPatches {
  const T* d_patches;
  T* d_x;
  Slide slide;
  std::int64_t channels, patch;

  template <int kWidth>
  __device__ NothingKept columns(std::int64_t, bool) const {
    return {};
  }
  template <int kWidth>
  __device__ void at(NothingKept, std::uint32_t row, std::int64_t column, bool wide) const {
    const Pixel pixel = pixel_of(row, slide.in_height, slide.in_width);
    float sums[kWidth] = {};
    slide.each_window(pixel, [&](int out_row, int out_column, int i, int j) {
      const std::int64_t position = static_cast<std::int64_t>(i) * slide.window_width + j;
      float values[kWidth];
      load<kWidth>(d_patches + offset_of(pixel.image, out_row, out_column, slide.out_height, slide.out_width, patch) +
                       position * channels + column,
                   wide, values);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sums[k] += values[k];
    });
    store<kWidth>(sums, wide, d_x + row * channels + column);
  }
};

/// Buffer for transposing a tile of a matrix. The odd pitch keeps columns in different banks.
template <class T>
struct TransposeTile {
  static constexpr int kSide = 32;
  T values[kSide][kSide + 1];
};

/// out [columns, rows] = or += in [rows, columns]'. Threads are arranged in rows of 32. Grid: tiles of columns, of
/// rows.
template <class T, class Out>
__global__ void __launch_bounds__(kBlock)
    transpose_tiles(const T* in, std::int64_t rows, std::int64_t columns, bool add, Out* out) {
  constexpr int kSide = TransposeTile<T>::kSide;
  constexpr int kLines = kBlock / kSide;
  auto& tile = shared<TransposeTile<T>>();
  const int lane = static_cast<int>(threadIdx.x) % kSide, line = static_cast<int>(threadIdx.x) / kSide;
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * kSide;
  for (std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * kSide; first_row < rows;
       first_row += static_cast<std::int64_t>(gridDim.y) * kSide) {
    for (int i = line; i < kSide; i += kLines) {
      if (first_row + i < rows && first_column + lane < columns) {
        tile.values[i][lane] = in[(first_row + i) * columns + first_column + lane];
      }
    }
    __syncthreads();
    for (int i = line; i < kSide; i += kLines) {
      if (first_column + i < columns && first_row + lane < rows) {
        Out* const to = out + (first_column + i) * rows + first_row + lane;
        const float value = to_float(tile.values[lane][i]);
        const float sums[1] = {add ? to_float(*to) + value : value};
        store<1>(sums, true, to);
      }
    }
    __syncthreads();
  }
}

}  // namespace lockstep::model::cuda
