/// \file
/// The choice of samples for validation.
#pragma once

#include <cstdint>

#include "io/shards/counter_random.hpp"

namespace lockstep::io {

/// Chooses each sample in turn for validation with probability (still wanted) / (still to come). This chooses exactly
/// as many as wanted, all choices equally likely, without memory (Fan, Muller and Rezucha 1962; Knuth's algorithm S).
/// The choice is a function of the seed and the two numbers.
class ValidationDraw {
 public:
  /// `all`: number of samples; `wanted`: number of samples for validation.
  ValidationDraw(std::int64_t all, std::int64_t wanted, std::uint64_t seed) noexcept
      : seed_(seed), wanted_(wanted), left_(all) {}

  /// True if the next sample validates.
  bool next() noexcept {
    const std::int64_t index = done_++;
    const RandomBlock words =
        random_block(seed_, RandomPurpose::validation_split, static_cast<std::uint64_t>(index), 0);
    __extension__ using Wide = unsigned __int128;
    const std::uint64_t bits = std::uint64_t{words[0]} << 32 | words[1];
    const auto drawn = static_cast<std::int64_t>((Wide{bits} * static_cast<std::uint64_t>(left_)) >> 64);
    --left_;
    const bool validates = drawn < wanted_;
    if (validates) --wanted_;
    return validates;
  }

 private:
  std::uint64_t seed_;
  std::int64_t wanted_;  ///< number of validation samples still wanted
  std::int64_t left_;    ///< number of samples still to come
  std::int64_t done_ = 0;
};

}  // namespace lockstep::io
