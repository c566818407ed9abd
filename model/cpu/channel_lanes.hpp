/// \file
/// Sixteen channels side by side, for loops that keep several values of each channel in registers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "model/cpu/clones.hpp"

namespace lockstep::model::cpu {

constexpr std::size_t kLanes = 16;
/// One or several registers, depending on the instruction set. Never passed by value: the calling convention depends on
/// the instruction set.
typedef float Floats __attribute__((vector_size(kLanes * sizeof(float))));
typedef std::int32_t Ints __attribute__((vector_size(kLanes * sizeof(std::int32_t))));
typedef std::uint8_t Bytes __attribute__((vector_size(kLanes)));

/// Half as many, for sums in double: no register holds sixteen doubles, and GCC keeps such a vector in memory.
constexpr std::size_t kHalf = kLanes / 2;
typedef float HalfFloats __attribute__((vector_size(kHalf * sizeof(float))));
typedef double Doubles __attribute__((vector_size(kHalf * sizeof(double))));
/// Number of the `count` channels that lie in half 0 or 1.
constexpr std::size_t in_half(std::size_t count, std::size_t half) noexcept {
  const std::size_t begin = half * kHalf;
  return count <= begin ? 0 : count - begin < kHalf ? count - begin : kHalf;
}

/// Loads or stores the first `count` lanes; the others become zero, or stay unchanged in memory.
template <bool kWhole, class Lanes, class Element>
LOCKSTEP_INLINE void load(Lanes& lanes, const Element* from, std::size_t count) {
  if constexpr (kWhole) {
    std::memcpy(&lanes, from, sizeof(lanes));
  } else {
    lanes = Lanes{};
    for (std::size_t i = 0; i < count; ++i) lanes[i] = from[i];
  }
}
template <bool kWhole, class Lanes, class Element>
LOCKSTEP_INLINE void store(const Lanes& lanes, Element* to, std::size_t count) {
  if constexpr (kWhole) {
    std::memcpy(to, &lanes, sizeof(lanes));
  } else {
    for (std::size_t i = 0; i < count; ++i) to[i] = lanes[i];
  }
}

template <bool kValue>
struct Whole {
  static constexpr bool value = kValue;
};

/// Calls do_lanes(Whole<...>, first channel, count): for whole groups of lanes, then for the rest.
template <class DoLanes>
LOCKSTEP_INLINE void for_channels(std::size_t channels, const DoLanes& do_lanes) {
  std::size_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) do_lanes(Whole<true>{}, c, kLanes);
  if (c < channels) do_lanes(Whole<false>{}, c, channels - c);
}

}  // namespace lockstep::model::cpu
