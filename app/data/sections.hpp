/// \file
/// Cuts samples into sections for sums over them. The sections do not depend on the number of ranks, so the sums have
/// the same bits at any number of ranks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lockstep::app {

inline constexpr std::int64_t kMaxSections = 64;

/// Returns the number of sections, at most kMaxSections; fewer if each section has many sums (`width`) or the data few
/// samples.
inline std::int64_t sections_of(std::int64_t samples, std::size_t width) {
  constexpr std::int64_t kMaxSums = std::int64_t{1} << 18;
  return std::min(samples, std::clamp<std::int64_t>(kMaxSums / static_cast<std::int64_t>(width), 1, kMaxSections));
}

}  // namespace lockstep::app
