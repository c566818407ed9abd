#include <algorithm>
#include <cstring>
#include <type_traits>

#include "model/cpu/loops/channel_lanes.hpp"
#include "model/cpu/loops/image_loops.hpp"

// Pixels are processed in runs that fit the first-level cache. A run processes sixteen channels at a time, and keeps
// their numbers and sums in registers. Sums over fp32 images are double for each element, since widening costs less
// than reading. Sums over bf16 images, whose mantissas have eight bits, are fp32 for a few pixels, which halves the
// arithmetic.
//
// Passes over bf16 images are also compiled for processors with instructions that round to bf16, with the same bits.

namespace lockstep::model::cpu {

namespace {

constexpr std::size_t kRunBytes = 16 << 10;

/// Calls do_lanes(Whole<...>, first channel, count, first pixel, end pixel) for all channels of all runs.
template <class DoLanes>
LOCKSTEP_INLINE void for_runs(std::size_t channels, Slice pixels, const DoLanes& do_lanes) {
  const std::size_t run = std::max<std::size_t>(kRunBytes / (channels * sizeof(float)), 8);
  for (std::size_t begin = pixels.offset; begin < pixels.end(); begin += run) {
    const std::size_t end = std::min(begin + run, pixels.end());
    for_channels(
        channels, [&](auto whole, std::size_t c, std::size_t count)
                      __attribute__((always_inline)) { do_lanes(whole, c, count, begin, end); });
  }
}

template <bool kResidual, bool kRelu, class Element>
LOCKSTEP_INLINE void normalize_runs(std::size_t channels, const NormalizeArrays<Element>& arrays, Slice pixels) {
  const auto [x, mean, gain, shift, residual, y] = arrays;
  for_runs(
      channels, pixels,
      [&](auto whole, std::size_t c, std::size_t count, std::size_t begin, std::size_t end)
          __attribute__((always_inline)) {
            constexpr bool kWhole = decltype(whole)::value;
            Floats means, gains, shifts;
            load<kWhole>(means, mean + c, count);
            load<kWhole>(gains, gain + c, count);
            load<kWhole>(shifts, shift + c, count);
            for (std::size_t at = begin * channels + c; at < end * channels; at += channels) {
              Floats value;
              load<kWhole>(value, x + at, count);
              value = (value - means) * gains + shifts;
              if constexpr (kResidual) {
                Floats other;
                load<kWhole>(other, residual + at, count);
                value += other;
              }
              if constexpr (kRelu) value = value < Floats{} ? Floats{} : value;
              store<kWhole>(value, y + at, count);
            }
          });
}

/// Number of pixels that are summed in fp32 before they are added to the double sums.
constexpr std::size_t kSummedPixels = 16;

/// sums [2 channels] += two sums per channel over runs of pixels. add(Whole<...>, index of the first channel, channels,
/// first sum, second sum) adds the two numbers of one pixel.
template <bool kWhole, class Add>
LOCKSTEP_INLINE void sum_pixels(std::size_t channels, std::size_t first, std::size_t all, std::size_t begin,
                                std::size_t end, double* sums, const Add& add) {
  Doubles totals[2][2];
  for (std::size_t half = 0; half < 2; ++half) {
    const std::size_t c = first + half * kHalf, count = in_half(all, half);
    load<kWhole>(totals[0][half], sums + c, count);
    load<kWhole>(totals[1][half], sums + channels + c, count);
  }
  for (std::size_t pixel = begin; pixel < end;) {
    const std::size_t last = std::min(pixel + kSummedPixels, end);
    Floats even[2] = {}, odd[2] = {};  // two independent chains of additions
    for (; pixel + 1 < last; pixel += 2) {
      add(pixel * channels + first, even[0], even[1]);
      add((pixel + 1) * channels + first, odd[0], odd[1]);
    }
    if (pixel < last) add(pixel++ * channels + first, even[0], even[1]);
    for (std::size_t which = 0; which < 2; ++which) {
      const Floats sum = even[which] + odd[which];
      HalfFloats halves[2];
      std::memcpy(halves, &sum, sizeof(sum));
      for (std::size_t half = 0; half < 2; ++half) {
        totals[which][half] += __builtin_convertvector(halves[half], Doubles);
      }
    }
  }
  for (std::size_t half = 0; half < 2; ++half) {
    const std::size_t c = first + half * kHalf, count = in_half(all, half);
    store<kWhole>(totals[0][half], sums + c, count);
    store<kWhole>(totals[1][half], sums + channels + c, count);
  }
}

/// Source of the mask of a relu.
enum class Mask { none, stored, recomputed };

template <Mask kMask, class Element>
LOCKSTEP_INLINE void gradient_sums_of_runs(std::size_t channels, const NormalizeGradientSums<Element>& arrays,
                                           Slice pixels) {
  const auto [x, y, d_y, mean, gain, relu_shift, sums] = arrays;
  for_runs(
      channels, pixels,
      [&](auto whole, std::size_t first, std::size_t all, std::size_t begin, std::size_t end)
          __attribute__((always_inline)) {
            constexpr bool kWhole = decltype(whole)::value;
            HalfFloats means[2], gains[2], shifts[2];
            Doubles sum[2], products[2];
            for (std::size_t half = 0; half < 2; ++half) {
              const std::size_t c = first + half * kHalf, count = in_half(all, half);
              load<kWhole>(means[half], mean + c, count);
              if constexpr (kMask == Mask::recomputed) {
                load<kWhole>(gains[half], gain + c, count);
                load<kWhole>(shifts[half], relu_shift + c, count);
              }
              load<kWhole>(sum[half], sums + c, count);
              load<kWhole>(products[half], sums + channels + c, count);
            }
            for (std::size_t pixel = begin; pixel < end; ++pixel) {
              for (std::size_t half = 0; half < 2; ++half) {
                const std::size_t at = pixel * channels + first + half * kHalf, count = in_half(all, half);
                HalfFloats value, gradient;
                load<kWhole>(gradient, d_y + at, count);
                if constexpr (kMask == Mask::stored) {
                  load<kWhole>(value, y + at, count);
                  gradient = value > HalfFloats{} ? gradient : HalfFloats{};
                  store<kWhole>(gradient, d_y + at, count);
                }
                load<kWhole>(value, x + at, count);
                value -= means[half];
                if constexpr (kMask == Mask::recomputed) {
                  gradient = value * gains[half] + shifts[half] > HalfFloats{} ? gradient : HalfFloats{};
                }
                const Doubles wide = __builtin_convertvector(gradient, Doubles);
                sum[half] += wide;
                products[half] += wide * __builtin_convertvector(value, Doubles);
              }
            }
            for (std::size_t half = 0; half < 2; ++half) {
              const std::size_t c = first + half * kHalf, count = in_half(all, half);
              store<kWhole>(sum[half], sums + c, count);
              store<kWhole>(products[half], sums + channels + c, count);
            }
          });
}

/// The same for bf16 images.
template <Mask kMask, class Element>
LOCKSTEP_INLINE void gradient_sums_of_bf16_runs(std::size_t channels, const NormalizeGradientSums<Element>& arrays,
                                                Slice pixels) {
  const auto [x, y, d_y, mean, gain, relu_shift, sums] = arrays;
  for_runs(
      channels, pixels,
      [&](auto whole, std::size_t c, std::size_t count, std::size_t begin, std::size_t end)
          __attribute__((always_inline)) {
            constexpr bool kWhole = decltype(whole)::value;
            Floats means, gains, shifts;
            load<kWhole>(means, mean + c, count);
            if constexpr (kMask == Mask::recomputed) {
              load<kWhole>(gains, gain + c, count);
              load<kWhole>(shifts, relu_shift + c, count);
            }
            sum_pixels<kWhole>(
                channels, c, count, begin, end,
                sums, [&](std::size_t at, Floats & sum, Floats & product) __attribute__((always_inline)) {
                  Floats value, gradient;
                  load<kWhole>(gradient, d_y + at, count);
                  if constexpr (kMask == Mask::stored) {
                    load<kWhole>(value, y + at, count);
                    gradient = value > Floats{} ? gradient : Floats{};
                    store<kWhole>(gradient, d_y + at, count);
                  }
                  load<kWhole>(value, x + at, count);
                  value -= means;
                  if constexpr (kMask == Mask::recomputed) {
                    gradient = value * gains + shifts > Floats{} ? gradient : Floats{};
                  }
                  sum += gradient;
                  product += gradient * value;
                });
          });
}

/// sums_of_channels() for bf16 images.
template <class Element>
LOCKSTEP_INLINE void sums_of_bf16_channels(std::size_t channels, const Element* x, Slice pixels, double* sums) {
  std::fill_n(sums, 2 * channels, 0.0);
  for_runs(
      channels, pixels,
      [&](auto whole, std::size_t c, std::size_t count, std::size_t begin, std::size_t end)
          __attribute__((always_inline)) {
            constexpr bool kWhole = decltype(whole)::value;
            sum_pixels<kWhole>(
                channels, c, count, begin, end,
                sums, [&](std::size_t at, Floats & sum, Floats & squares) __attribute__((always_inline)) {
                  Floats value;
                  load<kWhole>(value, x + at, count);
                  sum += value;
                  squares += value * value;
                });
          });
}

template <class Element>
LOCKSTEP_INLINE void sums_of_channels(std::size_t channels, const Element* x, Slice pixels, double* sums) {
  std::fill_n(sums, 2 * channels, 0.0);
  for_runs(
      channels, pixels,
      [&](auto whole, std::size_t first, std::size_t all, std::size_t begin, std::size_t end)
          __attribute__((always_inline)) {
            constexpr bool kWhole = decltype(whole)::value;
            Doubles sum[2], squares[2];
            for (std::size_t half = 0; half < 2; ++half) {
              const std::size_t c = first + half * kHalf, count = in_half(all, half);
              load<kWhole>(sum[half], sums + c, count);
              load<kWhole>(squares[half], sums + channels + c, count);
            }
            for (std::size_t pixel = begin; pixel < end; ++pixel) {
              for (std::size_t half = 0; half < 2; ++half) {
                HalfFloats value;
                load<kWhole>(value, x + pixel * channels + first + half * kHalf, in_half(all, half));
                const Doubles wide = __builtin_convertvector(value, Doubles);
                sum[half] += wide;
                squares[half] += wide * wide;
              }
            }
            for (std::size_t half = 0; half < 2; ++half) {
              const std::size_t c = first + half * kHalf, count = in_half(all, half);
              store<kWhole>(sum[half], sums + c, count);
              store<kWhole>(squares[half], sums + channels + c, count);
            }
          });
}

template <class Element>
LOCKSTEP_INLINE void normalize_pixels(const BatchNorm& norm, const NormalizeArrays<Element>& arrays, Slice pixels) {
  const auto channels = static_cast<std::size_t>(norm.channels);
  if (arrays.residual != nullptr) {
    if (norm.relu) return normalize_runs<true, true>(channels, arrays, pixels);
    return normalize_runs<true, false>(channels, arrays, pixels);
  }
  if (norm.relu) return normalize_runs<false, true>(channels, arrays, pixels);
  normalize_runs<false, false>(channels, arrays, pixels);
}

template <Mask kMask, class Element>
LOCKSTEP_INLINE void gradient_sums_of_runs_of(std::size_t channels, const NormalizeGradientSums<Element>& arrays,
                                              Slice pixels) {
  if constexpr (std::is_same_v<Element, float>) {
    gradient_sums_of_runs<kMask>(channels, arrays, pixels);
  } else {
    gradient_sums_of_bf16_runs<kMask>(channels, arrays, pixels);
  }
}

template <class Element>
LOCKSTEP_INLINE void gradient_sums_of_pixels(const BatchNorm& norm, const NormalizeGradientSums<Element>& arrays,
                                             Slice pixels) {
  const auto channels = static_cast<std::size_t>(norm.channels);
  std::fill_n(arrays.sums, 2 * channels, 0.0);
  if (!norm.relu) return gradient_sums_of_runs_of<Mask::none>(channels, arrays, pixels);
  if (arrays.y == nullptr) return gradient_sums_of_runs_of<Mask::recomputed>(channels, arrays, pixels);
  gradient_sums_of_runs_of<Mask::stored>(channels, arrays, pixels);
}

template <bool kMasked, class Element>
LOCKSTEP_INLINE void gradient_of_runs(std::size_t channels, const NormalizeGradient<Element>& arrays, Slice pixels) {
  const auto [x, d_y, mean, gain, slope, shift, relu_shift, d_x] = arrays;
  for_runs(
      channels, pixels,
      [&](auto whole, std::size_t c, std::size_t count, std::size_t begin, std::size_t end)
          __attribute__((always_inline)) {
            constexpr bool kWhole = decltype(whole)::value;
            Floats means, gains, slopes, shifts, relu_shifts;
            load<kWhole>(means, mean + c, count);
            load<kWhole>(gains, gain + c, count);
            load<kWhole>(slopes, slope + c, count);
            load<kWhole>(shifts, shift + c, count);
            if constexpr (kMasked) load<kWhole>(relu_shifts, relu_shift + c, count);
            for (std::size_t at = begin * channels + c; at < end * channels; at += channels) {
              Floats value, gradient;
              load<kWhole>(value, x + at, count);
              load<kWhole>(gradient, d_y + at, count);
              value -= means;
              if constexpr (kMasked) gradient = value * gains + relu_shifts > Floats{} ? gradient : Floats{};
              value = gains * gradient + value * slopes + shifts;
              store<kWhole>(value, d_x + at, count);
            }
          });
}

template <class Element>
LOCKSTEP_INLINE void gradient_of_pixels(const BatchNorm& norm, const NormalizeGradient<Element>& arrays, Slice pixels) {
  const auto channels = static_cast<std::size_t>(norm.channels);
  if (arrays.relu_shift != nullptr) return gradient_of_runs<true>(channels, arrays, pixels);
  gradient_of_runs<false>(channels, arrays, pixels);
}

/// Masks d_y by the relu and, for fixed statistics, computes d_x.
template <class Element>
LOCKSTEP_INLINE void scaled_gradient(const BatchNorm& norm, const NormalizeFixedGradient<Element>& arrays,
                                     Slice pixels) {
  const auto channels = static_cast<std::size_t>(norm.channels);
  const auto [y, d_y, gain, d_x] = arrays;
  const bool relu = norm.relu;
  for_runs(
      channels, pixels,
      [&](auto whole, std::size_t c, std::size_t count, std::size_t begin, std::size_t end)
          __attribute__((always_inline)) {
            constexpr bool kWhole = decltype(whole)::value;
            Floats gains;
            load<kWhole>(gains, gain + c, count);
            for (std::size_t at = begin * channels + c; at < end * channels; at += channels) {
              Floats value, gradient;
              load<kWhole>(gradient, d_y + at, count);
              if (relu) {
                load<kWhole>(value, y + at, count);
                gradient = value > Floats{} ? gradient : Floats{};
                store<kWhole>(gradient, d_y + at, count);
              }
              gradient *= gains;
              store<kWhole>(gradient, d_x + at, count);
            }
          });
}

// ---- passes that use the processor's rounding instruction ----

LOCKSTEP_TARGET(LOCKSTEP_ROUNDING_SET)
void channel_sums_natively(std::size_t channels, const NativeBf16* x, Slice pixels, double* sums) {
  sums_of_bf16_channels(channels, x, pixels, sums);
}
LOCKSTEP_TARGET(LOCKSTEP_ROUNDING_SET)
void normalize_natively(const BatchNorm& norm, const NormalizeArrays<NativeBf16>& arrays, Slice pixels) {
  normalize_pixels(norm, arrays, pixels);
}
LOCKSTEP_TARGET(LOCKSTEP_ROUNDING_SET)
void gradient_sums_natively(const BatchNorm& norm, const NormalizeGradientSums<NativeBf16>& arrays, Slice pixels) {
  gradient_sums_of_pixels(norm, arrays, pixels);
}
LOCKSTEP_TARGET(LOCKSTEP_ROUNDING_SET)
void gradient_natively(const BatchNorm& norm, const NormalizeGradient<NativeBf16>& arrays, Slice pixels) {
  gradient_of_pixels(norm, arrays, pixels);
}

LOCKSTEP_CLONES void channel_sums_widening(std::size_t channels, const Bf16* x, Slice pixels, double* sums) {
  sums_of_bf16_channels(channels, x, pixels, sums);
}
LOCKSTEP_CLONES void normalize_rounding(const BatchNorm& norm, const NormalizeArrays<Bf16>& arrays, Slice pixels) {
  normalize_pixels(norm, arrays, pixels);
}
LOCKSTEP_CLONES void gradient_sums_rounding(const BatchNorm& norm, const NormalizeGradientSums<Bf16>& arrays,
                                            Slice pixels) {
  gradient_sums_of_pixels(norm, arrays, pixels);
}
LOCKSTEP_CLONES void gradient_rounding(const BatchNorm& norm, const NormalizeGradient<Bf16>& arrays, Slice pixels) {
  gradient_of_pixels(norm, arrays, pixels);
}

}  // namespace

LOCKSTEP_CLONES void channel_sums(std::size_t channels, const float* x, Slice pixels, double* sums) {
  sums_of_channels(channels, x, pixels, sums);
}
void channel_sums(std::size_t channels, const Bf16* x, Slice pixels, double* sums) {
  if (!widens_natively()) return channel_sums_widening(channels, x, pixels, sums);
  channel_sums_natively(channels, native(x), pixels, sums);
}
LOCKSTEP_CLONES void normalize(const BatchNorm& norm, const NormalizeArrays<float>& arrays, Slice pixels) {
  normalize_pixels(norm, arrays, pixels);
}
void normalize(const BatchNorm& norm, const NormalizeArrays<Bf16>& arrays, Slice pixels) {
  if (!widens_natively()) return normalize_rounding(norm, arrays, pixels);
  const auto& [x, mean, gain, shift, residual, y] = arrays;
  normalize_natively(norm, {native(x), mean, gain, shift, native(residual), native(y)}, pixels);
}
LOCKSTEP_CLONES void normalize_gradient_sums(const BatchNorm& norm, const NormalizeGradientSums<float>& arrays,
                                             Slice pixels) {
  gradient_sums_of_pixels(norm, arrays, pixels);
}
void normalize_gradient_sums(const BatchNorm& norm, const NormalizeGradientSums<Bf16>& arrays, Slice pixels) {
  if (!widens_natively()) return gradient_sums_rounding(norm, arrays, pixels);
  const auto& [x, y, d_y, mean, gain, relu_shift, sums] = arrays;
  gradient_sums_natively(norm, {native(x), native(y), native(d_y), mean, gain, relu_shift, sums}, pixels);
}
LOCKSTEP_CLONES void normalize_gradient(const BatchNorm& norm, const NormalizeGradient<float>& arrays, Slice pixels) {
  gradient_of_pixels(norm, arrays, pixels);
}
void normalize_gradient(const BatchNorm& norm, const NormalizeGradient<Bf16>& arrays, Slice pixels) {
  if (!widens_natively()) return gradient_rounding(norm, arrays, pixels);
  const auto& [x, d_y, mean, gain, slope, shift, relu_shift, d_x] = arrays;
  gradient_natively(norm, {native(x), native(d_y), mean, gain, slope, shift, relu_shift, native(d_x)}, pixels);
}
LOCKSTEP_CLONES void normalize_fixed_gradient(const BatchNorm& norm, const NormalizeFixedGradient<float>& arrays,
                                              Slice pixels) {
  scaled_gradient(norm, arrays, pixels);
}
LOCKSTEP_CLONES void normalize_fixed_gradient(const BatchNorm& norm, const NormalizeFixedGradient<Bf16>& arrays,
                                              Slice pixels) {
  scaled_gradient(norm, arrays, pixels);
}

}  // namespace lockstep::model::cpu
