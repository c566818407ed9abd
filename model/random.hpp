/// \file
/// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror & Shaw, "Parallel random numbers: as easy as 1,
/// 2, 3" (SC 2011). A draw is a pure function of (counter, key): no state, hence the same numbers in any order, on any
/// rank or thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "model/formulas/host_device.hpp"

namespace lockstep::model {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

/// Result of a draw, for kernels and loops.
struct PhiloxWords {
  std::uint32_t word[4];
};

/// Four independent uniform 32-bit words of the counter (c0, c1, c2, c3) under the key (k0, k1). About 20
/// multiplications, no branch, no memory.
LOCKSTEP_HOST_DEVICE constexpr PhiloxWords philox_words(std::uint32_t c0, std::uint32_t c1, std::uint32_t c2,
                                                        std::uint32_t c3, std::uint32_t k0, std::uint32_t k1) noexcept {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53} * c0;
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<std::uint32_t>(product1 >> 32) ^ c1 ^ k0;
    c2 = static_cast<std::uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(product1);
    c3 = static_cast<std::uint32_t>(product0);
    k0 += 0x9E3779B9;  // Weyl sequences: the golden ratio, and sqrt(3) - 1
    k1 += 0xBB67AE85;
  }
  return {{c0, c1, c2, c3}};
}

/// The same draw, with arrays.
constexpr PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) noexcept {
  const PhiloxWords drawn = philox_words(counter[0], counter[1], counter[2], counter[3], key[0], key[1]);
  return {drawn.word[0], drawn.word[1], drawn.word[2], drawn.word[3]};
}

/// A number in the open interval (0, 1): centres of 2^32 equal cells, so that log() is always finite.
constexpr double open_uniform(std::uint32_t word) noexcept { return (word + 0.5) * 0x1p-32; }

/// FNV-1a, 64 bits: turns a name into a stream number.
constexpr std::uint64_t stream_of(std::string_view name) noexcept {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

}  // namespace lockstep::model
