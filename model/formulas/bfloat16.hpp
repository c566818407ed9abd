/// \file
/// bfloat16 as bit patterns: the upper half of a float32, with 8 bits of mantissa.
#pragma once

#include <cstdint>
#include <cstring>

#include "model/formulas/host_device.hpp"

namespace lockstep::model::formulas {

/// Rounds to nearest, ties to even. Overflow becomes infinity; any NaN becomes the quiet NaN 0x7fff, as on GPUs.
LOCKSTEP_HOST_DEVICE std::uint16_t bfloat16_bits(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  // Adds half a unit of the last kept bit, minus one if that bit is 0 (even), so that a tie carries only into an odd
  // number.
  bits += 0x7fffu + (bits >> 16 & 1u);
  return static_cast<std::uint16_t>(bits >> 16);
}

/// Converts exactly.
LOCKSTEP_HOST_DEVICE float from_bfloat16_bits(std::uint16_t value) {
  const std::uint32_t bits = static_cast<std::uint32_t>(value) << 16;
  float result = 0;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

}  // namespace lockstep::model::formulas
