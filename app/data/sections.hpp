/// \file
/// The sections that samples are cut into for sums over them: the same at any number of ranks, so that the sums have
/// the same bits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lockstep::app {

inline constexpr std::int64_t kMaxSections = 64;

/// Number of sections for sums of `width` numbers each, reduced if many numbers would make the sums large.
inline std::int64_t sections_of(std::int64_t samples, std::size_t width) {
  constexpr std::int64_t kMaxSums = std::int64_t{1} << 18;
  return std::min(samples, std::clamp<std::int64_t>(kMaxSums / static_cast<std::int64_t>(width), 1, kMaxSections));
}

}  // namespace lockstep::app
