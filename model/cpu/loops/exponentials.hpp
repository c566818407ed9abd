/// \file
/// exp and functions based on it, for one element, without branches so that loops vectorise. Only for files that are
/// compiled without -ffast-math (element_loops.hpp has the reason).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "model/cpu/clones.hpp"

namespace lockstep::model::cpu {

/// exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln 2 / 2. ln 2 is split in two so that n times its first part is
/// exact (Cody & Waite 1980); exp(r) uses the degree-6 polynomial of Cephes' expf. Relative error below 2e-7; 0 below
/// -87.7, saturating at 2.4e38 above 88.37; NaN stays NaN. At the lower bound n is -127, and the bits of 2^n are those
/// of 0.
LOCKSTEP_INLINE float fast_exp(float x) {
  constexpr float kLowest = -88.0f, kHighest = 88.37f;
  constexpr float kLog2e = 1.44269504088896341f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  // A NaN stays a NaN: n is then an arbitrary integer, and r is NaN.
  float bounded = x > kHighest ? kHighest : x;
  bounded = bounded < kLowest ? kLowest : bounded;
  const float scaled = bounded * kLog2e;
  const auto n = static_cast<std::int32_t>(scaled + std::copysign(0.5f, scaled));
  const auto exponent = static_cast<float>(n);
  const float r = (bounded - exponent * kLn2High) - exponent * kLn2Low;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return (p * r * r + r + 1) * std::bit_cast<float>((n + 127) << 23);
}

LOCKSTEP_INLINE float fast_sigmoid(float x) { return 1 / (1 + fast_exp(-x)); }

/// Near zero the odd polynomial of Cephes' tanhf, elsewhere 1 - 2 / (exp(2 |x|) + 1). The selection uses bit masks,
/// because the compiler would turn a conditional into a branch, and the loop would not vectorise.
LOCKSTEP_INLINE float fast_tanh(float x) {
  const float magnitude = std::abs(x);
  const float far = std::copysign(1 - 2 / (fast_exp(2 * magnitude) + 1), x);
  const float square = x * x;
  float p = -5.70498872745e-3f;
  p = p * square + 2.06390887954e-2f;
  p = p * square - 5.37397155531e-2f;
  p = p * square + 1.33314422036e-1f;
  p = p * square - 3.33332819422e-1f;
  const float near = p * square * x + x;
  const std::int32_t is_near = magnitude < 0.625f ? -1 : 0;
  return std::bit_cast<float>((std::bit_cast<std::int32_t>(near) & is_near) |
                              (std::bit_cast<std::int32_t>(far) & ~is_near));
}

/// The standard normal distribution function: erfc(z) / 2 for x = -z sqrt(2), by erfc(z) = t exp(-z^2 + p(t)), t = 1 /
/// (1 + z / 2) (Press et al. 1992, section 6.2). Relative error below 3e-7, plus that of exp. Selects by bit masks as
/// in fast_tanh().
LOCKSTEP_INLINE float fast_normal_share(float x) {
  const float z = std::abs(x) * 0.70710678118654752f, t = 1 / (1 + 0.5f * z);
  float p = 0.17087277f;
  p = p * t - 0.82215223f;
  p = p * t + 1.48851587f;
  p = p * t - 1.13520398f;
  p = p * t + 0.27886807f;
  p = p * t - 0.18628806f;
  p = p * t + 0.09678418f;
  p = p * t + 0.37409196f;
  p = p * t + 1.00002368f;
  p = p * t - 1.26551223f;
  const float below = 0.5f * t * fast_exp(p - z * z);
  const std::int32_t is_below = x < 0 ? -1 : 0;
  return std::bit_cast<float>((std::bit_cast<std::int32_t>(below) & is_below) |
                              (std::bit_cast<std::int32_t>(1 - below) & ~is_below));
}

/// log(1 + x) = 2 artanh(x / (2 + x)) for x in [0, 1]. Relative error below 2e-7.
LOCKSTEP_INLINE float fast_log1p_of_share(float x) {
  const float s = x / (2 + x), square = s * s;
  float p = 1.0f / 13;
  p = p * square + 1.0f / 11;
  p = p * square + 1.0f / 9;
  p = p * square + 1.0f / 7;
  p = p * square + 1.0f / 5;
  p = p * square + 1.0f / 3;
  return 2 * (s + s * square * p);
}

}  // namespace lockstep::model::cpu
