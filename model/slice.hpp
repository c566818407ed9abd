/// \file
/// A range of counted things: elements of an array, rows, images, blocks.
#pragma once

#include <cstddef>

namespace lockstep::model {

/// [offset, offset + count).
struct Slice {
  std::size_t offset = 0;
  std::size_t count = 0;

  constexpr std::size_t end() const noexcept { return offset + count; }
  bool operator==(const Slice&) const = default;
};

}  // namespace lockstep::model
