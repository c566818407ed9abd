/// \file
/// Images as matrices of patches, and back.
#pragma once

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
    int row, column;  ///< in the image, of the window at its first pixel
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

/// Where rows are longer than a patch, zeros come behind it. A pack may begin and end within a pixel's channels: its
/// elements are gathered one by one and stored at once.
template <class T>
struct GatherPaddedPatches {
  GatherPatches<T> of;
  std::int64_t elements;  ///< of a patch

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

/// A tile of a matrix on its way to its transpose. The odd pitch keeps columns in different banks.
template <class T>
struct TransposeTile {
  static constexpr int kSide = 32;
  T values[kSide][kSide + 1];
};

/// out [columns, rows] = or += in [rows, columns]'. Threads stand in rows of 32. Grid: tiles of columns, of rows.
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
