/// \file
/// bf16 numbers as the CPU's instructions make and read them: the upper half of a float.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "model/cpu/clones.hpp"

namespace lockstep::model::cpu {

using Bf16 = std::uint16_t;

/// Rounds to nearest, ties to even. As in the instructions, denormal numbers become zero and a NaN stays one.
LOCKSTEP_INLINE Bf16 to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  const std::uint32_t quiet = bits >> 16 | 0x40, zero = bits >> 16 & 0x8000;
  const std::uint32_t magnitude = bits & 0x7FFFFFFF;
  return static_cast<Bf16>(magnitude > 0x7F800000 ? quiet : magnitude < 0x00800000 ? zero : rounded);
}

LOCKSTEP_INLINE float to_float(Bf16 value) { return std::bit_cast<float>(std::uint32_t{value} << 16); }

/// Rounds `from`; `to` is as long, and is not `from`.
void round_to_bf16(std::span<const float> from, std::span<Bf16> to);
void round_to_bf16(std::span<const float> from, std::span<float> to);
/// The inverse, exact.
void widen(std::span<const Bf16> from, std::span<float> to);

/// to[i] += x[i], rounded.
void add_bf16(std::span<const Bf16> x, std::span<Bf16> to);
/// The sum in double, in order.
double sum_of_bf16_squares(std::span<const Bf16> x);

}  // namespace lockstep::model::cpu
