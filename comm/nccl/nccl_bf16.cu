#include <algorithm>

#include <cuda_bf16.h>

#include "comm/nccl/nccl_bf16.hpp"

namespace lockstep::comm {
namespace {

/// Elements per thread: 16 bytes of float32, 8 of bfloat16, in one access if both are aligned to that.
constexpr std::size_t kPack = 4;
constexpr unsigned kThreads = 256;
constexpr std::size_t kMaxBlocks = 4096;

__device__ std::size_t first_of_thread() {
  return (static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x) * kPack;
}
__device__ std::size_t stride() { return static_cast<std::size_t>(gridDim.x) * kThreads * kPack; }

__device__ bool aligned(const float* values, const std::uint16_t* rounded) {
  return reinterpret_cast<std::uintptr_t>(values) % 16 == 0 && reinterpret_cast<std::uintptr_t>(rounded) % 8 == 0;
}

__device__ std::uint16_t round_one(float value) { return __bfloat16_as_ushort(__float2bfloat16_rn(value)); }
__device__ float widen_one(std::uint16_t rounded) { return __bfloat162float(__ushort_as_bfloat16(rounded)); }

__global__ void round_kernel(std::uint16_t* rounded, const float* values, std::size_t count) {
  const bool packed = aligned(values, rounded);
  for (std::size_t i = first_of_thread(); i < count; i += stride()) {
    if (packed && i + kPack <= count) {
      const float4 from = *reinterpret_cast<const float4*>(values + i);
      *reinterpret_cast<ushort4*>(rounded + i) =
          make_ushort4(round_one(from.x), round_one(from.y), round_one(from.z), round_one(from.w));
    } else {
      for (std::size_t k = i; k < i + kPack && k < count; ++k) rounded[k] = round_one(values[k]);
    }
  }
}

__global__ void widen_kernel(float* values, const std::uint16_t* rounded, std::size_t count) {
  const bool packed = aligned(values, rounded);
  for (std::size_t i = first_of_thread(); i < count; i += stride()) {
    if (packed && i + kPack <= count) {
      const ushort4 from = *reinterpret_cast<const ushort4*>(rounded + i);
      *reinterpret_cast<float4*>(values + i) =
          make_float4(widen_one(from.x), widen_one(from.y), widen_one(from.z), widen_one(from.w));
    } else {
      for (std::size_t k = i; k < i + kPack && k < count; ++k) values[k] = widen_one(rounded[k]);
    }
  }
}

unsigned blocks_for(std::size_t count) {
  constexpr std::size_t kOfBlock = kThreads * kPack;
  return static_cast<unsigned>(std::min((count + kOfBlock - 1) / kOfBlock, kMaxBlocks));
}

}  // namespace

int enqueue_rounding(void* stream, std::uint16_t* rounded, const float* values, std::size_t count) noexcept {
  round_kernel<<<blocks_for(count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(rounded, values, count);
  return cudaGetLastError();
}

int enqueue_widening(void* stream, float* values, const std::uint16_t* rounded, std::size_t count) noexcept {
  widen_kernel<<<blocks_for(count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(values, rounded, count);
  return cudaGetLastError();
}

}  // namespace lockstep::comm
