/// \file
/// Sixteen channels side by side, for loops that keep several values of each channel in registers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "model/cpu/clones.hpp"

namespace lockstep::model::cpu {

constexpr std::size_t kLanes = 16;
/// One register or several, as the instruction set has it. Never passed by value: how depends on the instruction set.
typedef float Floats __attribute__((vector_size(kLanes * sizeof(float))));
typedef std::int32_t Ints __attribute__((vector_size(kLanes * sizeof(std::int32_t))));
typedef std::uint8_t Bytes __attribute__((vector_size(kLanes)));

/// Half as many, for sums in double: a register of sixteen doubles does not exist, and GCC keeps it in memory.
constexpr std::size_t kHalf = kLanes / 2;
typedef float HalfFloats __attribute__((vector_size(kHalf * sizeof(float))));
typedef double Doubles __attribute__((vector_size(kHalf * sizeof(double))));
/// How many of `count` channels are in half 0 or 1.
constexpr std::size_t in_half(std::size_t count, std::size_t half) noexcept {
  const std::size_t begin = half * kHalf;
  return count <= begin ? 0 : count - begin < kHalf ? count - begin : kHalf;
}

/// The first `count` lanes; the others become zero, or stay as they are in memory.
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

/// do_lanes(Whole<...>, first channel, how many): whole groups of lanes, then the rest.
template <class DoLanes>
LOCKSTEP_INLINE void for_channels(std::size_t channels, const DoLanes& do_lanes) {
  std::size_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) do_lanes(Whole<true>{}, c, kLanes);
  if (c < channels) do_lanes(Whole<false>{}, c, channels - c);
}

}  // namespace lockstep::model::cpu
