/// \file
/// Access to elements in kernels: several at a time, in accesses of up to 16 bytes, converted to float for arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <cuda_bf16.h>

#include "model/formulas/host_device.hpp"
#include "model/tensor.hpp"

namespace lockstep::model::cuda {

/// CUDA's bfloat16, with conversions in one instruction. They give the same bits as formulas/bfloat16.hpp.
using Bfloat16 = __nv_bfloat16;

inline constexpr int kWideBytes = 16;

/// Neighbouring elements that are read together. Packs larger than 16 bytes are read in accesses of 16 bytes.
template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth < kWideBytes ? sizeof(T) * kWidth : kWideBytes) Pack {
  T values[kWidth];
};

/// Number of elements of T in one access of 16 bytes.
template <class T>
inline constexpr int kWideWidth = kWideBytes / static_cast<int>(sizeof(T));

/// True if packs of kWidth elements may be read from `data` on.
template <int kWidth, class T>
bool takes_packs(const T* data) {
  return reinterpret_cast<std::uintptr_t>(data) % alignof(Pack<T, kWidth>) == 0;
}

template <class T>
__device__ __forceinline__ float to_float(T value) {
  return static_cast<float>(value);
}
template <>
__device__ __forceinline__ float to_float(Bfloat16 value) {
  return __bfloat162float(value);
}

template <int kWidth>
__device__ __forceinline__ void round_to(const float (&values)[kWidth], Pack<float, kWidth>& pack) {
#pragma unroll
  for (int k = 0; k < kWidth; ++k) pack.values[k] = values[k];
}
template <int kWidth>
__device__ __forceinline__ void round_to(const float (&values)[kWidth], Pack<Bfloat16, kWidth>& pack) {
  if constexpr (kWidth % 2 == 0) {
#pragma unroll
    for (int k = 0; k < kWidth; k += 2) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(values[k], values[k + 1]);
      pack.values[k] = __low2bfloat16(pair);
      pack.values[k + 1] = __high2bfloat16(pair);
    }
  } else {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) pack.values[k] = __float2bfloat16_rn(values[k]);
  }
}

/// Type of one access to a Pack. The compiler may split a struct of small elements and store the parts separately, so
/// this uses words and an explicit instruction (__stwb).
template <class P>
using WordOf = std::conditional_t<
    (sizeof(P) >= 16), uint4,
    std::conditional_t<sizeof(P) == 8, uint2,
                       std::conditional_t<sizeof(P) == 4, std::uint32_t,
                                          std::conditional_t<sizeof(P) == 2, std::uint16_t, std::uint8_t>>>>;

/// Checks alignment in the CPU build: a GPU faults on an access whose address is not a multiple of its size, a CPU does
/// not.
template <class P>
__device__ __forceinline__ void expect_aligned([[maybe_unused]] const void* data) {
  static_assert(sizeof(P) % sizeof(WordOf<P>) == 0 && (sizeof(P) & (sizeof(P) - 1)) == 0, "a pack is whole words");
#if !defined(__CUDACC__)
  if (reinterpret_cast<std::uintptr_t>(data) % alignof(P) != 0) throw std::logic_error("a pack that is not aligned");
#endif
}

/// Reads kWidth neighbours without conversion. wide: they may be read as a pack.
template <int kWidth, class T>
__device__ __forceinline__ Pack<T, kWidth> load_pack(const T* from, bool wide) {
  Pack<T, kWidth> pack;
  if (kWidth > 1 && wide) {
    using Word = WordOf<Pack<T, kWidth>>;
    expect_aligned<Pack<T, kWidth>>(from);
#pragma unroll
    for (std::size_t i = 0; i < sizeof pack / sizeof(Word); ++i) {
      const Word word = reinterpret_cast<const Word*>(from)[i];
      memcpy(reinterpret_cast<char*>(&pack) + i * sizeof word, &word, sizeof word);
    }
  } else {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) pack.values[k] = from[k];
  }
  return pack;
}

/// Writes kWidth neighbours without conversion.
template <int kWidth, class T>
__device__ __forceinline__ void store_pack(const Pack<T, kWidth>& pack, bool wide, T* to) {
  if (kWidth > 1 && wide) {
    using Word = WordOf<Pack<T, kWidth>>;
    expect_aligned<Pack<T, kWidth>>(to);
#pragma unroll
    for (std::size_t i = 0; i < sizeof pack / sizeof(Word); ++i) {
      Word word;
      memcpy(&word, reinterpret_cast<const char*>(&pack) + i * sizeof word, sizeof word);
#if defined(__CUDACC__)
      __stwb(reinterpret_cast<Word*>(to) + i, word);
#else
      reinterpret_cast<Word*>(to)[i] = word;
#endif
    }
  } else {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) to[k] = pack.values[k];
  }
}

/// Reads kWidth neighbours, converted to float.
template <int kWidth, class T>
__device__ __forceinline__ void load(const T* from, bool wide, float (&to)[kWidth]) {
  const Pack<T, kWidth> pack = load_pack<kWidth>(from, wide);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) to[k] = to_float(pack.values[k]);
}

/// Writes kWidth neighbours, rounded to nearest even.
template <int kWidth, class T>
__device__ __forceinline__ void store(const float (&from)[kWidth], bool wide, T* to) {
  Pack<T, kWidth> pack;
  round_to(from, pack);
  store_pack(pack, wide, to);
}

// ---- several packs in flight ----

/// A pack as in memory, in words: separate elements would occupy a register each.
template <class T, int kWidth>
struct Words {
  using Word = WordOf<Pack<T, kWidth>>;
  static constexpr int kCount = static_cast<int>(sizeof(Pack<T, kWidth>) / sizeof(Word));
  Word of[kCount];
};
template <int kWidth, class T>
__device__ __forceinline__ Words<T, kWidth> load_words(const T* from, bool wide) {
  Words<T, kWidth> words;
  if (kWidth > 1 && wide) {
    expect_aligned<Pack<T, kWidth>>(from);
#pragma unroll
    for (int i = 0; i < words.kCount; ++i) {
      words.of[i] = reinterpret_cast<const typename Words<T, kWidth>::Word*>(from)[i];
    }
  } else {
    const Pack<T, kWidth> pack = load_pack<kWidth>(from, false);
    memcpy(&words, &pack, sizeof words);
  }
  return words;
}
template <class T, int kWidth>
__device__ __forceinline__ void unpack(const Words<T, kWidth>& words, float (&to)[kWidth]) {
  Pack<T, kWidth> pack;
  memcpy(&pack, &words, sizeof words);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) to[k] = to_float(pack.values[k]);
}

/// Calls run<T>() with the type of `tensor`. Throws std::invalid_argument unless it is a compute type.
template <class Run>
void with_compute_type(const char* what, const Tensor& tensor, const Run& run) {
  if (tensor.type == ElementType::float32) return run.template operator()<float>();
  if (tensor.type == ElementType::bfloat16) return run.template operator()<Bfloat16>();
  throw std::invalid_argument(std::string(what) + ": tensors of " + name_of(tensor.type));
}

}  // namespace lockstep::model::cuda
