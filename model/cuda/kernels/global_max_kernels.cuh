/// \file
/// The maximum of each channel over the pixels of an image, and its gradient. A block handles a tile of channels of one
/// image. Its threads share the pixels, and their results are combined in the order of pixels. So the bits are those of
/// one thread that visits all pixels: the first of equal values and the first NaN win.
#pragma once

#include <cmath>
#include <cstdint>

#include "model/cuda/kernels/launch.cuh"
#include "model/cuda/kernels/packs.cuh"

namespace lockstep::model::cuda {

/// Images [pixels, channels]. Block i handles tile i % tiles of image i / tiles.
struct TiledImages {
  int pixels;
  std::int64_t channels;
  unsigned tiles;
  int column_bits;
};

/// The pixels and channels of a thread. Threads of a block are arranged in rows of 1 << column_bits.
struct OwnPixels {
  std::int64_t first;   ///< element of the image's first pixel, at the thread's first channel
  std::int64_t result;  ///< element of the thread's first channel, among those of all images
  int row, rows;
  bool has_channels;
};
template <int kWidth>
__device__ __forceinline__ OwnPixels own_pixels(const TiledImages& images) {
  const std::int64_t image = blockIdx.x / images.tiles, tile = blockIdx.x % images.tiles;
  const std::int64_t lane = threadIdx.x & ((1u << images.column_bits) - 1);
  const std::int64_t column = ((tile << images.column_bits) + lane) * kWidth;
  return {image * images.pixels * images.channels + column, image * images.channels + column,
          static_cast<int>(threadIdx.x >> images.column_bits), static_cast<int>(kBlock >> images.column_bits),
          column < images.channels};
}

template <int kWidth, class V>
struct OfThreads {
  V at[kWidth][kBlock];
};
/// own = the combined values of all rows of threads. Calls combine(value of later rows, value of earlier rows), which
/// changes its second argument. All threads of the block must call it, once.
template <int kWidth, class V, class Combine>
__device__ __forceinline__ void combine_rows(int column_bits, V (&own)[kWidth], const Combine& combine) {
  auto& all = shared<OfThreads<kWidth, V>>().at;
  const unsigned row = threadIdx.x >> column_bits, rows = kBlock >> column_bits;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) all[k][threadIdx.x] = own[k];
  for (unsigned step = 1; step < rows; step *= 2) {
    __syncthreads();
    if (row % (2 * step) != 0) continue;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      combine(all[k][threadIdx.x + (step << column_bits)], own[k]);
      all[k][threadIdx.x] = own[k];
    }
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kWidth; ++k) own[k] = all[k][threadIdx.x & ((1u << column_bits) - 1)];
}

/// Pixels that a thread loads together, so that they are in flight together.
inline constexpr int kPixelsInFlight = 4;

/// y = the maxima. A thread has neighbouring pixels.
template <int kWidth, class T>
__global__ void __launch_bounds__(kBlock) global_max(const T* x, T* y, TiledImages images, bool wide) {
  const OwnPixels own = own_pixels<kWidth>(images);
  const std::int64_t share = (static_cast<std::int64_t>(images.pixels) + own.rows - 1) / own.rows;
  const std::int64_t begin = own.row * share, end = begin + share < images.pixels ? begin + share : images.pixels;
  const auto take = [](float value, float& greatest) {
    // Not <=, so that a NaN is taken and kept.
    if (!(value <= greatest) && greatest == greatest) greatest = value;
  };
  float greatest[kWidth];
#pragma unroll
  for (int k = 0; k < kWidth; ++k) greatest[k] = -INFINITY;
  if (own.has_channels) {
    for (std::int64_t pixel = begin; pixel < end; pixel += kPixelsInFlight) {
      Pack<T, kWidth> ahead[kPixelsInFlight];
#pragma unroll
      for (int p = 0; p < kPixelsInFlight; ++p) {
        const std::int64_t at = pixel + p < end ? pixel + p : end - 1;  // repeating the last one changes nothing
        ahead[p] = load_pack<kWidth>(x + own.first + at * images.channels, wide);
      }
#pragma unroll
      for (int p = 0; p < kPixelsInFlight; ++p) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) take(to_float(ahead[p].values[k]), greatest[k]);
      }
    }
  }
  combine_rows(images.column_bits, greatest, take);
  if (own.row == 0 && own.has_channels) store<kWidth>(greatest, wide, y + own.result);
}

/// d_x = d_y at the first pixel that has the maximum, zero elsewhere. A row of threads has every rows-th pixel.
template <int kWidth, class T>
__global__ void __launch_bounds__(kBlock)
    global_max_gradient(const T* x, const T* y, const T* d_y, T* d_x, TiledImages images, bool wide) {
  const OwnPixels own = own_pixels<kWidth>(images);
  unsigned chosen[kWidth];
#pragma unroll
  for (int k = 0; k < kWidth; ++k) chosen[k] = static_cast<unsigned>(images.pixels);
  if (own.has_channels) {
    float greatest[kWidth];
    load<kWidth>(y + own.result, wide, greatest);
    for (std::int64_t pixel = own.row; pixel < images.pixels; pixel += kPixelsInFlight * own.rows) {
      Pack<T, kWidth> ahead[kPixelsInFlight];
#pragma unroll
      for (int p = 0; p < kPixelsInFlight; ++p) {
        const std::int64_t at = pixel + p * own.rows < images.pixels ? pixel + p * own.rows : pixel;
        ahead[p] = load_pack<kWidth>(x + own.first + at * images.channels, wide);
      }
#pragma unroll
      for (int p = 0; p < kPixelsInFlight; ++p) {
        const unsigned at = static_cast<unsigned>(pixel) + static_cast<unsigned>(p * own.rows);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
          const float value = to_float(ahead[p].values[k]);
          const bool is_it = value == greatest[k] || (value != value && greatest[k] != greatest[k]);
          chosen[k] = is_it && at < chosen[k] ? at : chosen[k];
        }
      }
    }
  }
  combine_rows(images.column_bits, chosen, [](unsigned later, unsigned& earlier) {
    if (later < earlier) earlier = later;
  });
  if (!own.has_channels) return;
  float gradients[kWidth];
  load<kWidth>(d_y + own.result, wide, gradients);
  for (std::int64_t pixel = own.row; pixel < images.pixels; pixel += own.rows) {
    float to[kWidth];
#pragma unroll
    for (int k = 0; k < kWidth; ++k) to[k] = pixel == chosen[k] ? gradients[k] : 0.0f;
    store<kWidth>(to, wide, d_x + own.first + pixel * images.channels);
  }
}

}  // namespace lockstep::model::cuda
