/// \file
/// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror & Shaw, "Parallel random numbers: as easy as
/// 1, 2, 3" (SC 2011). A draw is a pure function of (counter, key): no state, hence the same numbers whoever asks
/// first, on whatever rank or thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep::model {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

/// Four independent uniform 32-bit words. About 20 multiplications.
constexpr PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) noexcept {
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = kMultiplier0 * counter[0];
    const std::uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

/// In the open interval (0, 1): centres of 2^32 equal cells, so that log() is always finite.
constexpr double open_uniform(std::uint32_t word) noexcept { return (word + 0.5) * 0x1p-32; }

/// FNV-1a, 64 bits: turns a name into a stream number.
constexpr std::uint64_t stream_of(std::string_view name) noexcept {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

}  // namespace lockstep::model
