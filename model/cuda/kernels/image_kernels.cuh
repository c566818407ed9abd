/// \file
/// Augmentation, and the response normalisation across channels.
#pragma once

#include <cmath>
#include <cstdint>

#include "model/cuda/kernels/row_passes.cuh"
#include "model/formulas/augmentation.hpp"

namespace lockstep::model::cuda {

/// State of a block: the augmentation of its sample.
struct AugmentedSample {
  formulas::SampleAugmentation drawn;
  double sum[kBlock], squares[kBlock];
};
/// Stored after it, for each channel: first its sums, then its map.
struct AugmentedChannel {
  double sum, squares;
  formulas::Affine map;
};

/// Returns one element of a stored pixel; 0 outside the image.
template <class In>
__device__ __forceinline__ float stored(const In* image, const formulas::AugmentationNumbers& numbers, int plane,
                                        int row, int column, int channel) {
  if (plane < 0 || plane >= numbers.in_depth || row < 0 || row >= numbers.in_height || column < 0 ||
      column >= numbers.in_width) {
    return 0;
  }
  const std::int64_t line = static_cast<std::int64_t>(plane) * numbers.in_height + row;
  return to_float(image[(line * numbers.in_width + column) * numbers.channels + channel]);
}

/// Returns one element of a pixel of the crop, before colour.
template <class In>
__device__ __forceinline__ float cropped(const In* image, const formulas::AugmentationNumbers& numbers,
                                         const formulas::SampleAugmentation& sample, const formulas::CropPixel& at,
                                         int channel) {
  const int plane = sample.front + at.plane;
  if (!sample.scaled) return stored(image, numbers, plane, sample.top + at.row, sample.left + at.column, channel);
  const formulas::Tap rows = formulas::tap_of(at.row, sample.height, numbers.out_height);
  const formulas::Tap columns = formulas::tap_of(at.column, sample.width, numbers.out_width);
  const int top = sample.top + rows.first, bottom = sample.top + rows.second;
  const int left = sample.left + columns.first, right = sample.left + columns.second;
  return formulas::blend(stored(image, numbers, plane, top, left, channel),
                         stored(image, numbers, plane, top, right, channel),
                         stored(image, numbers, plane, bottom, left, channel),
                         stored(image, numbers, plane, bottom, right, channel), rows, columns);
}

/// Returns the output pixel with this number.
__device__ __forceinline__ formulas::CropPixel pixel_at(const formulas::AugmentationNumbers& numbers, int pixel) {
  const int line = pixel / numbers.out_width;
  return {line / numbers.out_height, line % numbers.out_height, pixel - line * numbers.out_width};
}

/// Computes sum and sum of squares of each channel of the crop. A thread adds its pixels in order; then the sums of
/// threads are added by halving.
template <class In>
__device__ void add_channels(const In* image, const formulas::AugmentationNumbers& numbers, AugmentedSample& sample,
                             AugmentedChannel* channels) {
  const int pixels = numbers.out_depth * numbers.out_height * numbers.out_width;
  for (int channel = 0; channel < numbers.channels; ++channel) {
    double sum = 0, squares = 0;
    for (int pixel = static_cast<int>(threadIdx.x); pixel < pixels; pixel += kBlock) {
      const auto value = static_cast<double>(cropped(image, numbers, sample.drawn, pixel_at(numbers, pixel), channel));
      sum += value;
      squares += value * value;
    }
    sample.sum[threadIdx.x] = sum;
    sample.squares[threadIdx.x] = squares;
    __syncthreads();
    for (unsigned half = kBlock / 2; half > 0; half /= 2) {
      if (threadIdx.x < half) {
        sample.sum[threadIdx.x] += sample.sum[threadIdx.x + half];
        sample.squares[threadIdx.x] += sample.squares[threadIdx.x + half];
      }
      __syncthreads();
    }
    if (threadIdx.x == 0) {
      channels[channel].sum = sample.sum[0];
      channels[channel].squares = sample.squares[0];
    }
    __syncthreads();
  }
}

/// Computes the maps of all channels. Called by thread 0.
__device__ inline void map_channels(const formulas::AugmentationNumbers& numbers,
                                    const formulas::SampleAugmentation& sample, AugmentedChannel* channels,
                                    double* sums, double* squares) {
  const double pixels = static_cast<double>(numbers.out_depth) * numbers.out_height * numbers.out_width;
  const bool known = formulas::needs_sums(numbers, sample);
  formulas::CropMoments crop{};
  if (numbers.per_image) {
    for (int c = 0; c < numbers.channels; ++c) {
      sums[c] = channels[c].sum;
      squares[c] = channels[c].squares;
    }
    crop = formulas::crop_moments(sums, squares, numbers.channels, pixels, static_cast<double>(sample.contrast));
  }
  for (int c = 0; c < numbers.channels; ++c) {
    channels[c].map = formulas::channel_map(numbers, sample, crop, known ? channels[c].sum / pixels : 0, c);
  }
}

/// Largest number of channels of an augmented image: sums of threads and of channels share memory.
inline constexpr int kMaxImageChannels = kBlock;

/// Grid: samples; parts of each, more than one only if no sums are needed. keys: null in evaluation.
template <class In, class T>
__global__ void __launch_bounds__(kBlock)
    augment_samples(const In* images, const std::uint64_t* keys,
                    const __grid_constant__ formulas::AugmentationNumbers numbers, T* out) {
  auto& sample = shared<AugmentedSample>();
  auto* const channels = reinterpret_cast<AugmentedChannel*>(&sample + 1);
  const std::int64_t in_elements =
      static_cast<std::int64_t>(numbers.in_depth) * numbers.in_height * numbers.in_width * numbers.channels;
  const int out_elements = numbers.out_depth * numbers.out_height * numbers.out_width * numbers.channels;
  const In* const image = images + blockIdx.x * in_elements;
  T* const to = out + static_cast<std::int64_t>(blockIdx.x) * out_elements;
  if (threadIdx.x == 0) {
    sample.drawn =
        keys == nullptr ? formulas::central_crop(numbers) : formulas::draw_augmentation(numbers, keys[blockIdx.x]);
  }
  __syncthreads();
  if (formulas::needs_sums(numbers, sample.drawn)) add_channels(image, numbers, sample, channels);
  if (threadIdx.x == 0) map_channels(numbers, sample.drawn, channels, sample.sum, sample.squares);
  __syncthreads();
  const formulas::SampleAugmentation drawn = sample.drawn;
  const auto stride = static_cast<int>(gridDim.y * kBlock);
  for (int i = static_cast<int>(blockIdx.y * kBlock + threadIdx.x); i < out_elements; i += stride) {
    const int pixel = i / numbers.channels, channel = i - pixel * numbers.channels;
    const formulas::CropPixel shown = formulas::shown_pixel(numbers, drawn, pixel_at(numbers, pixel));
    const formulas::Affine map = channels[channel].map;
    const float values[1] = {cropped(image, numbers, drawn, shown, channel) * map.gain + map.offset};
    store<1>(values, true, to + i);
  }
}

/// Part of a block in response normalisation: `pixels` pixels with all their channels.
struct Response {
  int channels, radius, pixels_of_block;
  float bias, alpha, beta;

  /// Returns bias + alpha * sum of squares around channel c. pixel: channel 0 of the pixel.
  template <class T>
  __device__ __forceinline__ float base(const T* pixel, int c) const {
    const int end = c + radius + 1 < channels ? c + radius + 1 : channels;
    float sum = 0;
    for (int j = c < radius ? 0 : c - radius; j < end; ++j) {
      const float value = to_float(pixel[j]);
      sum += value * value;
    }
    return bias + alpha * sum;
  }
};

template <class T>
struct ResponseForward {
  const T* x;
  T* y;
  Response response;

  template <int kWidth>
  __device__ void at(std::int64_t i) const {
    static_assert(kWidth == 1);
    const auto c = static_cast<int>(i % response.channels);
    const float values[1] = {to_float(x[i]) * std::pow(response.base(x + (i - c), c), -response.beta)};
    store<1>(values, true, y + i);
  }
};

/// d_x[c] = d_y[c] s[c]^-beta - 2 alpha beta x[c] * sum of d_y[j] y[j] / s[j] around c, where s is Response::base().
/// Copies the values of d_y that neighbours need to shared memory before it writes d_x, which may be d_y.
template <class T>
__global__ void __launch_bounds__(kBlock)
    response_backward(const T* x, const T* y, const T* d_y, std::int64_t pixels, Response response, T* d_x) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * response.pixels_of_block;
  const std::int64_t left = pixels - first;
  const int count =
      (left < response.pixels_of_block ? static_cast<int>(left) : response.pixels_of_block) * response.channels;
  const std::int64_t begin = first * response.channels;
  auto* const bases = &shared<float>();
  float* const shares = bases + response.pixels_of_block * response.channels;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kBlock) {
    const int c = i % response.channels;
    const float base = response.base(x + begin + i - c, c);
    bases[i] = base;
    shares[i] = to_float(d_y[begin + i]) * to_float(y[begin + i]) / base;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kBlock) {
    const int c = i % response.channels;
    const int end = c + response.radius + 1 < response.channels ? c + response.radius + 1 : response.channels;
    float sum = 0;
    for (int j = c < response.radius ? 0 : c - response.radius; j < end; ++j) sum += shares[i - c + j];
    const float direct = to_float(d_y[begin + i]) * std::pow(bases[i], -response.beta);
    const float values[1] = {direct - 2 * response.alpha * response.beta * to_float(x[begin + i]) * sum};
    store<1>(values, true, d_x + begin + i);
  }
}

}  // namespace lockstep::model::cuda
