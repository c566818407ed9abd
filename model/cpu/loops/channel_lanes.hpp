/// \file
/// Vectors of sixteen channels, for loops that keep several values of each channel in registers. They are floats in
/// registers, and floats or bf16 numbers in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "model/cpu/bf16/number.hpp"
#include "model/cpu/clones.hpp"
#include "model/tensor.hpp"

namespace lockstep::model::cpu {

constexpr std::size_t kLanes = 16;
/// One or several registers, depending on the instruction set. Never passed by value: the calling convention depends on
/// the instruction set.
typedef float Floats __attribute__((vector_size(kLanes * sizeof(float))));
typedef std::int32_t Ints __attribute__((vector_size(kLanes * sizeof(std::int32_t))));
typedef std::uint8_t Bytes __attribute__((vector_size(kLanes)));
/// Intermediate type from bytes to Ints: GCC 12 converts without splitting vectors only to twice the size.
typedef std::uint16_t Shorts __attribute__((vector_size(kLanes * sizeof(std::uint16_t))));

/// Half as many lanes, for sums in double: no register holds sixteen doubles, and GCC would keep such a vector in
/// memory.
constexpr std::size_t kHalf = kLanes / 2;
typedef float HalfFloats __attribute__((vector_size(kHalf * sizeof(float))));
typedef double Doubles __attribute__((vector_size(kHalf * sizeof(double))));
/// Returns how many of the `count` channels lie in half 0 or 1.
constexpr std::size_t in_half(std::size_t count, std::size_t half) noexcept {
  const std::size_t begin = half * kHalf;
  return count <= begin ? 0 : count - begin < kHalf ? count - begin : kHalf;
}

/// Load or store the first `count` lanes. Loading zeroes the other lanes; storing does not change them in memory.
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

/// Vectors of integers with as many elements as a vector of floats.
template <class Lanes>
struct BitsOf;
template <>
struct BitsOf<Floats> {
  typedef Bf16 Halves __attribute__((vector_size(kLanes * sizeof(Bf16))));
  typedef std::uint32_t Words __attribute__((vector_size(kLanes * sizeof(std::uint32_t))));
  typedef std::int32_t Signed __attribute__((vector_size(kLanes * sizeof(std::int32_t))));
};
template <>
struct BitsOf<HalfFloats> {
  typedef Bf16 Halves __attribute__((vector_size(kHalf * sizeof(Bf16))));
  typedef std::uint32_t Words __attribute__((vector_size(kHalf * sizeof(std::uint32_t))));
  typedef std::int32_t Signed __attribute__((vector_size(kHalf * sizeof(std::int32_t))));
};

/// The same for float lanes and bf16 numbers in memory.
template <bool kWhole, class Lanes>
LOCKSTEP_INLINE void load(Lanes& lanes, const Bf16* from, std::size_t count) {
  typename BitsOf<Lanes>::Halves halves{};
  if constexpr (kWhole) {
    std::memcpy(&halves, from, sizeof(halves));
  } else {
    for (std::size_t i = 0; i < count; ++i) halves[i] = from[i];
  }
  const auto words = __builtin_convertvector(halves, typename BitsOf<Lanes>::Words) << 16;
  std::memcpy(&lanes, &words, sizeof(lanes));
}
/// Rounds like to_bf16(). Makes masks by shifts, since GCC 12 turns a comparison into sixteen branches for some
/// processors.
template <bool kWhole, class Lanes>
LOCKSTEP_INLINE void store(const Lanes& lanes, Bf16* to, std::size_t count) {
  using Words = typename BitsOf<Lanes>::Words;
  using Signed = typename BitsOf<Lanes>::Signed;
  Words bits;
  std::memcpy(&bits, &lanes, sizeof(bits));
  const Words upper = bits >> 16;
  const auto magnitude = __builtin_convertvector(bits & 0x7FFFFFFF, Signed);
  const auto is_nan = __builtin_convertvector((0x7F800000 - magnitude) >> 31, Words),
             is_tiny = __builtin_convertvector((magnitude - 0x00800000) >> 31, Words);
  Words rounded = (bits + 0x7FFF + (upper & 1)) >> 16;
  rounded = (rounded & ~is_nan) | ((upper | 0x40) & is_nan);
  rounded &= ~is_tiny | 0x8000;
  const auto halves = __builtin_convertvector(rounded, typename BitsOf<Lanes>::Halves);
  if constexpr (kWhole) {
    std::memcpy(to, &halves, sizeof(halves));
  } else {
    for (std::size_t i = 0; i < count; ++i) to[i] = halves[i];
  }
}

/// The instruction set with rounding to bf16, for LOCKSTEP_TARGET.
#define LOCKSTEP_ROUNDING_SET "x86-64-v4,avx512bf16"
/// A bf16 number that a processor instruction widens and rounds, to the same bits as to_bf16(). Only for functions that
/// are compiled for LOCKSTEP_ROUNDING_SET. GCC 12 needs five instructions to widen 16 numbers.
struct NativeBf16 {
  Bf16 bits;
};

#if LOCKSTEP_HAS_INSTRUCTION_SETS
template <class Lanes>
LOCKSTEP_INLINE void widen_natively(const typename BitsOf<Lanes>::Halves& halves, Lanes& lanes) {
  typename BitsOf<Lanes>::Words words;
  asm("vpmovzxwd %1, %0" : "=v"(words) : "v"(halves));
  words <<= 16;
  std::memcpy(&lanes, &words, sizeof(lanes));
}
template <class Lanes>
LOCKSTEP_INLINE void round_natively(const Lanes& lanes, typename BitsOf<Lanes>::Halves& halves) {
  asm("vcvtneps2bf16 %1, %0" : "=v"(halves) : "v"(lanes));
}
#else
template <class Lanes>
LOCKSTEP_INLINE void widen_natively(const typename BitsOf<Lanes>::Halves& halves, Lanes& lanes) {
  load<true>(lanes, reinterpret_cast<const Bf16*>(&halves), 0);
}
template <class Lanes>
LOCKSTEP_INLINE void round_natively(const Lanes& lanes, typename BitsOf<Lanes>::Halves& halves) {
  store<true>(lanes, reinterpret_cast<Bf16*>(&halves), 0);
}
#endif

/// Convert bytes to Ints and back.
#if LOCKSTEP_HAS_INSTRUCTION_SETS
LOCKSTEP_INLINE void widen_natively(const Bytes& bytes, Ints& ints) {
  asm("vpmovzxbd %1, %0" : "=v"(ints) : "v"(bytes));
}
LOCKSTEP_INLINE void narrow_natively(const Ints& ints, Bytes& bytes) {
  asm("vpmovdb %1, %0" : "=v"(bytes) : "v"(ints));
}
/// Sets best = value and place = here in the lanes where value is greater or the first NaN. In assembly, because GCC 12
/// splits two selections with one mask into scalar code.
LOCKSTEP_INLINE void take_greater_natively(const Floats& value, const Ints& here, Floats& best, Ints& place) {
  asm("vcmpps $22, %0, %2, %%k1\n\t"         // !(value <= best)
      "vcmpps $7, %0, %0, %%k1%{%%k1%}\n\t"  // and best is not NaN
      "vmovaps %2, %0%{%%k1%}\n\t"
      "vmovdqa32 %3, %1%{%%k1%}"
      : "+v"(best), "+v"(place)
      : "v"(value), "v"(here)
      : "k1");
}
#else
LOCKSTEP_INLINE void widen_natively(const Bytes& bytes, Ints& ints) {
  for (std::size_t i = 0; i < kLanes; ++i) ints[i] = bytes[i];
}
LOCKSTEP_INLINE void narrow_natively(const Ints& ints, Bytes& bytes) {
  for (std::size_t i = 0; i < kLanes; ++i) bytes[i] = static_cast<std::uint8_t>(ints[i]);
}
LOCKSTEP_INLINE void take_greater_natively(const Floats& value, const Ints& here, Floats& best, Ints& place) {
  for (std::size_t i = 0; i < kLanes; ++i) {
    if (value[i] <= best[i] || best[i] != best[i]) continue;
    best[i] = value[i];
    place[i] = here[i];
  }
}
#endif

template <bool kWhole, class Lanes>
LOCKSTEP_INLINE void load(Lanes& lanes, const NativeBf16* from, std::size_t count) {
  typename BitsOf<Lanes>::Halves halves{};
  std::memcpy(&halves, from, kWhole ? sizeof(halves) : count * sizeof(Bf16));
  widen_natively(halves, lanes);
}
template <bool kWhole, class Lanes>
LOCKSTEP_INLINE void store(const Lanes& lanes, NativeBf16* to, std::size_t count) {
  typename BitsOf<Lanes>::Halves halves;
  round_natively(lanes, halves);
  std::memcpy(to, &halves, kWhole ? sizeof(halves) : count * sizeof(Bf16));
}

/// Convert one element to float and back.
LOCKSTEP_INLINE float number_of(float element) { return element; }
LOCKSTEP_INLINE float number_of(Bf16 element) { return to_float(element); }
LOCKSTEP_INLINE float number_of(NativeBf16 element) { return to_float(element.bits); }
LOCKSTEP_INLINE void put(float number, float& element) { element = number; }
LOCKSTEP_INLINE void put(float number, Bf16& element) { element = to_bf16(number); }
LOCKSTEP_INLINE void put(float number, NativeBf16& element) { element.bits = to_bf16(number); }

/// Calls work(pointers to the elements of each tensor): float* for float32, Half* for bfloat16.
template <class Half = Bf16, class Work>
LOCKSTEP_INLINE void with_elements(const Tensor& a, const Work& work) {
  if (a.type == ElementType::bfloat16) {
    work(static_cast<Half*>(a.data));
  } else {
    work(static_cast<float*>(a.data));
  }
}
template <class Half = Bf16, class Work>
LOCKSTEP_INLINE void with_elements(const Tensor& a, const Tensor& b, const Work& work) {
  with_elements<Half>(
      a, [&](auto* first) __attribute__((always_inline)) {
        with_elements<Half>(
            b, [&](auto* second) __attribute__((always_inline)) { work(first, second); });
      });
}
/// True if the processor has LOCKSTEP_ROUNDING_SET.
bool widens_natively() noexcept;
inline bool widens_natively(const Tensor& a, const Tensor& b) noexcept {
  return (a.type == ElementType::bfloat16 || b.type == ElementType::bfloat16) && widens_natively();
}
inline const NativeBf16* native(const Bf16* elements) { return reinterpret_cast<const NativeBf16*>(elements); }
inline NativeBf16* native(Bf16* elements) { return reinterpret_cast<NativeBf16*>(elements); }

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
