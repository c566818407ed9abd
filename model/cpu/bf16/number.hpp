/// \file
/// bf16 numbers, the upper half of a float, with the rounding of the CPU's instructions.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "model/cpu/clones.hpp"

namespace lockstep::model::cpu {

using Bf16 = std::uint16_t;

/// Rounds to nearest, ties to even. Like the instructions, it turns denormal numbers into zero and keeps a NaN.
LOCKSTEP_INLINE Bf16 to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  const std::uint32_t quiet = bits >> 16 | 0x40, zero = bits >> 16 & 0x8000;
  const std::uint32_t magnitude = bits & 0x7FFFFFFF;
  return static_cast<Bf16>(magnitude > 0x7F800000 ? quiet : magnitude < 0x00800000 ? zero : rounded);
}

LOCKSTEP_INLINE float to_float(Bf16 value) { return std::bit_cast<float>(std::uint32_t{value} << 16); }

/// Rounds `from` to `to`, which has the same length and does not overlap.
void round_to_bf16(std::span<const float> from, std::span<Bf16> to);
void round_to_bf16(std::span<const float> from, std::span<float> to);
/// The inverse; exact.
void widen(std::span<const Bf16> from, std::span<float> to);

/// to[i] += x[i], rounded.
void add_bf16(std::span<const Bf16> x, std::span<Bf16> to);
/// Returns the sum of squares in double, in the order of the elements.
double sum_of_bf16_squares(std::span<const Bf16> x);

}  // namespace lockstep::model::cpu
