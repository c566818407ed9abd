/// \file
/// Emulates the sums of the processors' bf16 instructions (bf16/kernels.hpp has their order), for functions that are
/// compiled for several instruction sets.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "model/cpu/bf16/kernels.hpp"
#include "model/cpu/clones.hpp"

namespace lockstep::model::cpu {

LOCKSTEP_INLINE float flushed(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<float>((bits & 0x7F800000) == 0 ? bits & 0x80000000 : bits);
}

/// Sums of kColumns columns of one row.
template <std::size_t kColumns>
using EmulatedSums = std::array<float, kColumns>;

/// Adds the row's element number `inner` of a step, times the corresponding row of b, to the sums.
template <std::size_t kColumns>
LOCKSTEP_INLINE void add_products(const Bf16* left, const Bf16* right, std::size_t inner,
                                  EmulatedSums<kColumns>& sums) {
  const float x = to_float(left[inner]);
  const Bf16* const pairs = right + inner / 2 * 32 + inner % 2;
  for (std::size_t n = 0; n < kColumns; ++n) {
    sums[n] = flushed(__builtin_fmaf(x, to_float(pairs[n / 16 * kBf16Tile + n % 16 * 2]), sums[n]));
  }
}

/// Adds one step of AMX, 32 inner elements.
template <std::size_t kColumns>
LOCKSTEP_INLINE void add_amx_step(const Bf16* left, const Bf16* right, EmulatedSums<kColumns>& sums) {
  EmulatedSums<kColumns> even{}, odd{};
  for (std::size_t pair = 0; pair < kBf16Panel; pair += 2) {
    add_products(left, right, pair, even);
    add_products(left, right, pair + 1, odd);
  }
  for (std::size_t n = 0; n < kColumns; ++n) sums[n] = flushed(flushed(sums[n]) + flushed(even[n] + odd[n]));
}

}  // namespace lockstep::model::cpu
