/// \file
/// Conversion of images to matrices of patches and back, convolutions with groups, and transposition.
#pragma once

#include <algorithm>
#include <cstdint>

#include "model/cuda/kernels/row_passes.cuh"

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

/// Fills rows that are longer than a patch with zeros. A pack may begin and end within the channels of a pixel: its
/// elements are gathered one by one and stored together.
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

/// Pixels that the patches of a segment of an output row read, one row of the window after the other.
template <class T>
struct PatchSource {
  static constexpr int kElements = (16 << 10) / static_cast<int>(sizeof(T));
  T values[kElements];  ///< the last one is 0
};

/// Division of output rows into segments for gather_patch_rows().
struct PatchSegments {
  int pixels = 0;      ///< pixels of a segment; 0: gather_patch_rows() cannot run it
  int of_row = 0;      ///< segments of an output row
  int row_length = 0;  ///< elements of an image row that a segment reads
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

/// GatherPaddedPatches through shared memory. A block reads the pixels of a segment once, row by row. Each thread
/// writes one pack of the columns for all pixels of the segment; neighbouring threads write neighbouring packs.
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
    __syncthreads();  // all threads have read the previous segment
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

/// GatherPatches and GatherPaddedPatches for any window in up to three directions. The `granule` of run_rows() is the
/// channels, so that a pack lies within a pixel. Rows are longer than a patch only if channels are not whole packs.
template <class T>
struct GatherVolumePatches {
  const T* x;
  T* patches;
  SlideOfVolumes slide;
  std::int64_t channels, patch, elements;  ///< patch: columns of a row; elements: columns without padding

  struct Position {
    int h, i, j, channel;
  };
  template <int kWidth>
  __device__ Position columns(std::int64_t column, bool) const {
    const auto position = static_cast<int>(column / channels), line = position / slide.width.size;
    return {line / slide.height.size, line % slide.height.size, position % slide.width.size,
            static_cast<int>(column - position * channels)};
  }
  template <int kWidth>
  __device__ void at(const Position& position, std::uint32_t row, std::int64_t column, bool wide) const {
    Pack<T, kWidth> pack{};
    const std::int64_t from =
        column < elements ? slide.source(slide.out_place(row), position.h, position.i, position.j) : -1;
    if (from >= 0) pack = load_pack<kWidth>(x + from * channels + position.channel, wide);
    store_pack(pack, wide, patches + row * patch + column);
  }
};

/// The same for few channels, where a pack of the patches has several pixels.
template <class T, int kChannels>
struct GatherFewChannels {
  const T* x;
  T* patches;
  SlideOfVolumes slide;
  std::int64_t patch, elements;  ///< as above

  template <int kWidth>
  struct Positions {
    static constexpr int kPixels = kWidth < kChannels ? 1 : kWidth / kChannels;
    struct {
      int h, i, j;
    } of[kPixels];
    int count, channel;  ///< pixels within the patch; channel of the first element
  };
  template <int kWidth>
  __device__ Positions<kWidth> columns(std::int64_t column, bool) const {
    Positions<kWidth> positions;
    const auto first = static_cast<int>(column) / kChannels;
    positions.channel = static_cast<int>(column) % kChannels;
    const int left = static_cast<int>(elements) / kChannels - first;
    positions.count = left < 0 ? 0 : left;
#pragma unroll
    for (int p = 0; p < Positions<kWidth>::kPixels; ++p) {
      const int position = first + p, line = position / slide.width.size;
      positions.of[p] = {line / slide.height.size, line % slide.height.size, position % slide.width.size};
    }
    return positions;
  }
  template <int kWidth>
  __device__ void at(const Positions<kWidth>& positions, std::uint32_t row, std::int64_t column, bool wide) const {
    constexpr int kOfPixel = kWidth < kChannels ? kWidth : kChannels;
    const SlideOfVolumes::Place out = slide.out_place(row);
    Pack<T, kOfPixel> pixels[Positions<kWidth>::kPixels];
#pragma unroll
    for (int p = 0; p < Positions<kWidth>::kPixels; ++p) {
      const auto& at = positions.of[p];
      const std::int64_t from = p < positions.count ? slide.source(out, at.h, at.i, at.j) : -1;
      pixels[p] = {};
      if (from >= 0) pixels[p] = load_pack<kOfPixel>(x + from * kChannels + positions.channel, wide);
    }
    Pack<T, kWidth> pack;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) pack.values[k] = pixels[k / kOfPixel].values[k % kOfPixel];
    store_pack(pack, wide, patches + row * patch + column);
  }
};

/// AddPatches for any window in up to three directions.
template <class T>
struct AddVolumePatches {
  const T* d_patches;
  T* d_x;
  SlideOfVolumes slide;
  std::int64_t channels, patch;

  template <int kWidth>
  __device__ void at(std::uint32_t row, std::int64_t column, bool wide) const {
    float sums[kWidth] = {};
    slide.each_window(slide.in_place(row), [&](std::int64_t out, int position) {
      float values[kWidth];
      load<kWidth>(d_patches + out * patch + position * channels + column, wide, values);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sums[k] += values[k];
    });
    store<kWidth>(sums, wide, d_x + row * channels + column);
  }
};

/// A convolution with groups, without patches. kEach: every group has one input and one output channel, so neighbouring
/// outputs read neighbouring inputs. Otherwise the `granule` of run_rows() is the outputs of a group, and all elements
/// of a pack read the same inputs.
template <class T, bool kEach>
struct GroupedForward {
  const T* x;
  const T* w;
  T* y;
  SlideOfVolumes slide;
  std::int64_t in_channels, out_channels;
  int in_of_group, out_of_group;

  /// Returns the first input channel of the group.
  template <int kWidth>
  __device__ std::int64_t columns(std::int64_t column, bool) const {
    return kEach ? column : column / out_of_group * in_of_group;
  }
  template <int kWidth>
  __device__ void at(std::int64_t first, std::uint32_t row, std::int64_t column, bool wide) const {
    float sums[kWidth] = {};
    slide.each_pixel(slide.out_place(row), [&](std::int64_t from, int position) {
      const T* pixel = x + from * in_channels + first;
      const T* weight = w + static_cast<std::int64_t>(position) * in_of_group * out_channels + column;
#pragma unroll 1  // unrolled, registers spill
      for (int i = 0; i < (kEach ? 1 : in_of_group); ++i, ++pixel, weight += out_channels) {
        float weights[kWidth];
        load<kWidth>(weight, wide, weights);
        if constexpr (kEach) {
          float values[kWidth];
          load<kWidth>(pixel, wide, values);
#pragma unroll
          for (int k = 0; k < kWidth; ++k) sums[k] += weights[k] * values[k];
        } else {
          const float value = to_float(*pixel);
#pragma unroll
          for (int k = 0; k < kWidth; ++k) sums[k] += weights[k] * value;
        }
      }
    });
    store<kWidth>(sums, wide, y + row * out_channels + column);
  }
};

/// Rows: input pixels. Columns: input channels. The `granule` of run_rows() is the channels with kEach, else 1.
template <class T, bool kEach>
struct GroupedImageGradient {
  const T* w;
  const T* d_y;
  T* d_x;
  SlideOfVolumes slide;
  std::int64_t in_channels, out_channels;
  int in_of_group, out_of_group;

  /// Returns the first output channel of the group.
  template <int kWidth>
  __device__ std::int64_t columns(std::int64_t column, bool) const {
    return kEach ? column : column / in_of_group * out_of_group;
  }
  template <int kWidth>
  __device__ void at(std::int64_t first, std::uint32_t row, std::int64_t column, bool wide) const {
    float sums[kWidth] = {};
    slide.each_window(slide.in_place(row), [&](std::int64_t out, int position) {
      const T* const gradient = d_y + out * out_channels + first;
      const T* const weight =
          w + (kEach ? position : position * in_of_group + static_cast<int>(column) % in_of_group) * out_channels +
          first;
#pragma unroll 1
      for (int o = 0; o < (kEach ? 1 : out_of_group); ++o) {
        float weights[kWidth], values[kWidth];
        load<kWidth>(weight + o, wide, weights);
        load<kWidth>(gradient + o, wide, values);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) sums[k] += weights[k] * values[k];
      }
    });
    store<kWidth>(sums, wide, d_x + row * in_channels + column);
  }
};

/// Partial sums of the filter gradient over parts of the batch's output pixels. Rows: parts * rows of the filters.
/// Columns: output channels. `granule` as in GroupedForward.
template <class T, bool kEach>
struct GroupedFilterGradient {
  const T* x;
  const T* d_y;
  float* sums_of_parts;
  SlideOfVolumes slide;
  std::int64_t in_channels, out_channels, pixels;  ///< pixels: output pixels of the batch
  int in_of_group, out_of_group, patch, parts;

  template <int kWidth>
  __device__ std::int64_t columns(std::int64_t column, bool) const {
    return kEach ? column : column / out_of_group * in_of_group;
  }
  template <int kWidth>
  __device__ void at(std::int64_t first, std::uint32_t row, std::int64_t column, bool wide) const {
    const int part = static_cast<int>(row) / patch, filter = static_cast<int>(row) - part * patch;
    const int position = filter / in_of_group, line = position / slide.width.size;
    const int j = position % slide.width.size, i = line % slide.height.size, h = line / slide.height.size;
    const T* const channel = x + first + filter % in_of_group;
    float sums[kWidth] = {};
    const std::int64_t end = pixels * (part + 1) / parts;
    for (std::int64_t pixel = pixels * part / parts; pixel < end; ++pixel) {
      const std::int64_t from = slide.source(slide.out_place(static_cast<std::uint32_t>(pixel)), h, i, j);
      if (from < 0) continue;
      float values[kWidth], gradients[kWidth];
      load<kWidth>(d_y + pixel * out_channels + column, wide, gradients);
      if constexpr (kEach) {
        load<kWidth>(channel + from * in_channels, wide, values);
      } else {
        const float value = to_float(channel[from * in_channels]);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) values[k] = value;
      }
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sums[k] += values[k] * gradients[k];
    }
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
      sums_of_parts[static_cast<std::int64_t>(row) * out_channels + column + k] = sums[k];
  }
};

/// d_w = or += sum of all parts, in order. One row. Columns: elements of d_w.
struct AddFilterParts {
  const float* sums_of_parts;
  float* d_w;
  std::int64_t elements;
  int parts;
  bool add;

  template <int kWidth>
  __device__ void at(std::uint32_t, std::int64_t column, bool) const {
#pragma unroll 1  // unrolled, registers spill
    for (int k = 0; k < kWidth; ++k) {
      float sum = add ? d_w[column + k] : 0.0f;
#pragma unroll 1
      for (int part = 0; part < parts; ++part) sum += sums_of_parts[part * elements + column + k];
      d_w[column + k] = sum;
    }
  }
};

/// Rows: input pixels. Columns: channels.
template <class T>
struct AddPatches {
  const T* d_patches;
  T* d_x;
  Slide slide;
  std::int64_t channels, patch;

  template <int kWidth>
  __device__ void at(std::uint32_t row, std::int64_t column, bool wide) const {
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

/// Buffer to transpose a tile of a matrix. The odd pitch puts the elements of a column in different banks.
template <class T>
struct TransposeTile {
  static constexpr int kSide = 32;
  T values[kSide][kSide + 1];
};

/// out [columns, rows] = or += transposed in [rows, columns]. Threads are arranged in rows of 32. Grid: tiles of
/// columns; tiles of rows.
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
