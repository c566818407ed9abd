/// \file
/// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011): random numbers
/// as a function of a key and a counter. Sample order and synthetic data thus depend only on the purpose of a draw,
/// never on the process or the time.
#pragma once

#include <array>
#include <cstdint>

namespace lockstep::io {

using RandomBlock = std::array<std::uint32_t, 4>;

/// About 10 ns.
constexpr RandomBlock philox(std::uint64_t key, RandomBlock counter) noexcept {
  auto key_low = static_cast<std::uint32_t>(key);
  auto key_high = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product_0 = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t product_2 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<std::uint32_t>(product_2 >> 32) ^ counter[1] ^ key_low, static_cast<std::uint32_t>(product_2),
        static_cast<std::uint32_t>(product_0 >> 32) ^ counter[3] ^ key_high, static_cast<std::uint32_t>(product_0)};
    key_low += 0x9E3779B9;
    key_high += 0xBB67AE85;
  }
  return counter;
}

/// Purpose of a counter; keeps the streams apart.
enum class RandomPurpose : std::uint32_t {
  block_order = 1,
  window_order,
  class_of_sample,
  features,
  noise,
  centre,
  validation_split,
  window_shift,
  class_draws
};

constexpr RandomBlock random_block(std::uint64_t key, RandomPurpose purpose, std::uint64_t major,
                                   std::uint32_t minor) noexcept {
  return philox(key, {minor, static_cast<std::uint32_t>(major), static_cast<std::uint32_t>(major >> 32),
                      static_cast<std::uint32_t>(purpose)});
}

/// Uniform in [0, 1), 32 bits.
constexpr double unit_interval(std::uint32_t bits) noexcept { return bits * 0x1p-32; }

}  // namespace lockstep::io
