/// \file
/// Placement of memory by lifetimes. Work runs in ticks, and a block of memory is needed over a closed interval of
/// ticks. Blocks that are never needed at the same tick may share addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace lockstep::model {

/// Closed interval of ticks; by default all of them.
struct Lifetime {
  std::int32_t first = 0;
  std::int32_t last = std::numeric_limits<std::int32_t>::max();

  bool meets(const Lifetime& other) const noexcept { return first <= other.last && other.first <= last; }
  /// The smallest interval that contains both.
  Lifetime with(const Lifetime& other) const noexcept {
    return {first < other.first ? first : other.first, last > other.last ? last : other.last};
  }
  bool operator==(const Lifetime&) const = default;
};

struct MemoryBlock {
  std::size_t bytes = 0;
  Lifetime lifetime;
};

struct MemoryPlacement {
  std::vector<std::size_t> offsets;  ///< one per block
  std::size_t bytes = 0;             ///< largest end of any block
};

/// Places the blocks greedily by size (Pisarchyk & Lee 2020): the largest first, ties in the given order, each at the
/// lowest offset that is free during its lifetime. Offsets are multiples of `alignment`. The result depends on the
/// arguments alone.
MemoryPlacement place_by_lifetimes(std::span<const MemoryBlock> blocks, std::size_t alignment);

/// The largest sum of bytes needed at one tick, each rounded up to `alignment`: a lower bound of any placement.
std::size_t most_bytes_at_a_tick(std::span<const MemoryBlock> blocks, std::size_t alignment);

}  // namespace lockstep::model
