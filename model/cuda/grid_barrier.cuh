/// \file
/// How blocks of a cooperative grid wait for each other, and some warps of a block for each other.
///
/// Blocks meet at a word of device memory. It is 0 between grids. Phase follows phase: in each of them `count` blocks
/// arrive once, and the last one of them turns bit 31 over and leaves the other bits 0. Who waits for phase p (from 0)
/// waits until bit 31 is that of p + 1. A block arrives in a phase only after it has waited for the one before, so no
/// block is two phases ahead. A grid that makes an even number of phases leaves the word 0 for the next one.
///
/// The counter is the only thing that is changed by an atomic operation: data have a fixed order of sums.
#pragma once

#include <cstdint>

#include "model/cuda/launch.cuh"

namespace lockstep::model::cuda {

/// From one word to the next: words that many blocks look at lie in lines of the cache of their own.
inline constexpr int kWordStride = 32;

/// What an arriving block adds to the word; one block of each phase is the first.
__device__ __forceinline__ unsigned arrival_of(unsigned count, bool first) {
  return first ? 0x80000000u - (count - 1) : 1u;
}

#if defined(__CUDACC__)

/// By one thread: what it has written, and what others have written before a barrier with it, comes before what a block
/// reads after await().
__device__ __forceinline__ void arrive(unsigned* word, unsigned count, bool first) {
  __threadfence();
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(word), "r"(arrival_of(count, first)) : "memory");
}

/// By one thread, and a barrier after it for the others.
__device__ __forceinline__ void await(const unsigned* word, int phase) {
  unsigned seen = 0;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(word) : "memory");
  } while (seen >> 31 == (static_cast<unsigned>(phase) & 1));
}

/// All of the kThreads threads, whole warps, that name the barrier `number`, from 1 to 15: __syncthreads() is 0.
template <int kThreads>
__device__ __forceinline__ void synchronize_team(int number) {
  __syncwarp();
  asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(kThreads) : "memory");
}

/// What another block may have written since the grid began: not from the multiprocessor's own cache.
template <class Word>
__device__ __forceinline__ Word load_fresh(const Word* from) {
  return __ldcg(from);
}

#else

inline void arrive(unsigned* word, unsigned count, bool first) {
  lockstep::test::cuda_on_cpu::add_to_word(word, arrival_of(count, first));
}
inline void await(const unsigned* word, int phase, std::source_location here = std::source_location::current()) {
  lockstep::test::cuda_on_cpu::wait_for_word(word, (static_cast<unsigned>(phase) & 1) == 0, here);
}
template <int kThreads>
void synchronize_team(int number, std::source_location here = std::source_location::current()) {
  lockstep::test::cuda_on_cpu::synchronize_some(static_cast<unsigned>(number), kThreads, here);
}
template <class Word>
Word load_fresh(const Word* from) {
  return *from;
}

#endif

}  // namespace lockstep::model::cuda
