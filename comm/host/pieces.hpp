/// \file
/// Large data travel in pieces, each of which MPI can count, and whose arrival is progress before the deadline.
#pragma once

#include <algorithm>
#include <cstddef>

namespace lockstep::comm {

/// Bytes of a piece: over 100 Mbit/s one takes a second and a half.
inline constexpr std::size_t kPieceBytes = std::size_t{16} << 20;

/// Calls visit(offset, length) for each piece of so many, at most `max` at a time; not at all where there are none.
template <class Visit>
void for_each_piece(std::size_t count, std::size_t max, Visit visit) {
  for (std::size_t offset = 0; offset < count; offset += max) visit(offset, std::min(max, count - offset));
}

}  // namespace lockstep::comm
