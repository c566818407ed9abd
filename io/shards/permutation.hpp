/// \file
/// Permutations that take no memory.
#pragma once

#include <bit>
#include <cstdint>

#include "io/shards/counter_random.hpp"

namespace lockstep::io {

/// A keyed permutation of [0, size): a Feistel network on the next power of two, repeated until the result is in the
/// range (fewer than two rounds on average). Computes any element on its own. Black and Rogaway, "Ciphers with
/// arbitrary finite domains", CT-RSA 2002.
class Permutation {
 public:
  Permutation() = default;
  Permutation(std::uint64_t size, const RandomBlock& keys) : size_(size), keys_(keys) {
    const int bits = std::bit_width(size - 1);
    low_bits_ = (bits + 1) / 2;
    low_mask_ = (std::uint64_t{1} << low_bits_) - 1;
    high_mask_ = (std::uint64_t{1} << (bits - low_bits_)) - 1;
  }
  std::uint64_t operator()(std::uint64_t value) const noexcept {
    do {
      std::uint64_t low = value & low_mask_;
      std::uint64_t high = value >> low_bits_;
      for (std::uint32_t round = 0; round < 3; ++round) {
        high ^= scramble(low, keys_[round] + round) & high_mask_;
        low ^= scramble(high, keys_[3] + round * 0x9E3779B9U) & low_mask_;
      }
      value = high << low_bits_ | low;
    } while (value >= size_);
    return value;
  }

 private:
  /// The upper half of a product depends on every bit of the value (Knuth's multiplicative hashing).
  static std::uint64_t scramble(std::uint64_t value, std::uint32_t key) noexcept {
    return (value ^ (std::uint64_t{key} << 7 | 1)) * 0x9E3779B97F4A7C15 >> 32;
  }

  std::uint64_t size_ = 1, low_mask_ = 0, high_mask_ = 0;
  int low_bits_ = 0;
  RandomBlock keys_{};
};

}  // namespace lockstep::io
