/// \file
/// Elements as kernels read and write them: several at a time in accesses of up to 16 bytes, computed with as float.
#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

#include "model/formulas/host_device.hpp"

namespace lockstep::model::cuda {

/// bfloat16 as the toolkit has it: conversions are one instruction. Bit for bit that of formulas/bfloat16.hpp.
using Bfloat16 = __nv_bfloat16;

inline constexpr int kWideBytes = 16;

/// Neighbours in memory, read at once. Larger ones than 16 bytes are read in accesses of 16.
template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth < kWideBytes ? sizeof(T) * kWidth : kWideBytes) Pack {
  T values[kWidth];
};

/// Elements of T in one access of 16 bytes.
template <class T>
inline constexpr int kWideWidth = kWideBytes / static_cast<int>(sizeof(T));

/// Whether packs of kWidth elements may be read from `data` on.
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

/// Reads kWidth neighbours; `wide` says that they may be read as packs.
template <int kWidth, class T>
__device__ __forceinline__ void load(const T* from, bool wide, float (&to)[kWidth]) {
  Pack<T, kWidth> pack;
  if (wide) {
    pack = *reinterpret_cast<const Pack<T, kWidth>*>(from);
  } else {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) pack.values[k] = from[k];
  }
#pragma unroll
  for (int k = 0; k < kWidth; ++k) to[k] = to_float(pack.values[k]);
}

/// Writes kWidth neighbours, rounded to nearest even.
template <int kWidth, class T>
__device__ __forceinline__ void store(const float (&from)[kWidth], bool wide, T* to) {
  Pack<T, kWidth> pack;
  round_to(from, pack);
  if (wide) {
    *reinterpret_cast<Pack<T, kWidth>*>(to) = pack;
  } else {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) to[k] = pack.values[k];
  }
}

}  // namespace lockstep::model::cuda
