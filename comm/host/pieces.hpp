/// \file
/// Splits large data into pieces that MPI can count. Each piece that arrives is progress before the deadline.
#pragma once

#include <algorithm>
#include <cstddef>

namespace lockstep::comm {

/// Bytes of a piece: it takes 1.5 s over 100 Mbit/s.
inline constexpr std::size_t kPieceBytes = std::size_t{16} << 20;

/// Calls visit(offset, length) for each piece of `count` elements; a piece has at most `max` elements. No elements: no
/// calls.
template <class Visit>
void for_each_piece(std::size_t count, std::size_t max, Visit visit) {
  for (std::size_t offset = 0; offset < count; offset += max) visit(offset, std::min(max, count - offset));
}

}  // namespace lockstep::comm
