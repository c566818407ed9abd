/// \file
/// Counts how often each piece of a text occurs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace lockstep::io {

/// A hash that lets a map of strings be searched for a view without a copy.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept { return std::hash<std::string_view>()(text); }
};
using TextCounts = std::unordered_map<std::string, std::int64_t, TextHash, std::equal_to<>>;

/// Counts one more occurrence.
inline void count(std::string_view piece, TextCounts& counts) {
  const auto found = counts.find(piece);
  if (found != counts.end()) {
    ++found->second;
  } else {
    counts.emplace(piece, 1);
  }
}

}  // namespace lockstep::io
