/// \file
/// Runs CUDA kernels on the host. CMake force-includes this file before a .cu file that a C++ compiler compiles. It
/// provides the CUDA language, and run_grid() of model/cuda/kernels/launch.cuh runs the grids. A kernel is then a
/// function that each thread calls; the threads of a block are fibers, and blocks run one after the other.
///
/// It finds: wrong indices and bounds (with guards around tensors, or under AddressSanitizer); wrong results; shared
/// memory that is read before it is written (it starts as NaN), written past its end, or kept from one block to the
/// next; barriers and shuffles that not all threads reach, or that they reach at different points; and results that
/// depend on the order of threads or blocks, if one of the tested orders shows it.
///
/// It models neither the GPU's memory model nor its timing. A thread is interrupted only at barriers and shuffles. So a
/// race between two barriers shows only if the order of the threads between them changes the result. ThreadSanitizer
/// sees the race in any order: there only __syncthreads and __syncwarp order the threads of a block. Not modelled at
/// all: caches, alignment faults (but packs.cuh checks its own accesses), registers, the compiler's GPU code. It does
/// not replace a run on a GPU.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <span>
#include <stdexcept>
#include <string>

#include "model/cuda/kernels/kernels.hpp"

namespace lockstep::model::cuda {
struct KernelArgument;
}  // namespace lockstep::model::cuda

namespace lockstep::test {

/// A kernel broke a rule of the language. The text names the kernel, its block and the state of its threads.
class KernelFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Sets the order of a block's threads and a grid's blocks: 0: as numbered; 1: reversed; 2 or more: shuffled with this
/// seed.
void order_threads(std::uint32_t seed);
/// Number of grids run since the program started.
std::int64_t grids_run();
/// A launched grid that waits for its stream; `run` runs it. Without a receiver, grids run at once.
struct LaunchedGrid {
  const char* kernel;
  cudaStream_t stream;
  std::span<const model::cuda::KernelArgument> arguments;
  std::function<void()> run;
};
void send_grids(std::function<cudaError_t(LaunchedGrid)> receiver);

namespace cuda_on_cpu {

using Here = std::source_location;

struct Place {
  uint3 thread{}, block{};
  dim3 block_size, grid_size;
};
/// Position of the current thread.
const Place& place();

void synchronize_block(const Here& here);
enum class Exchange { synchronize, ballot, read };
/// Returns the value that lane `source` passed, once all lanes of the mask have reached the same point; ballot: the
/// lanes that passed a nonzero value.
std::uint64_t exchange(unsigned mask, Exchange what, std::uint64_t bits, unsigned source, const Here& here);
unsigned lane();

template <class T>
T read_lane(unsigned mask, T value, unsigned source, const Here& here) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = exchange(mask, Exchange::read, bits, source, here);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace cuda_on_cpu
}  // namespace lockstep::test

#define __launch_bounds__(...)
#define threadIdx (::lockstep::test::cuda_on_cpu::place().thread)
#define blockIdx (::lockstep::test::cuda_on_cpu::place().block)
#define blockDim (::lockstep::test::cuda_on_cpu::place().block_size)
#define gridDim (::lockstep::test::cuda_on_cpu::place().grid_size)

inline void __syncthreads(std::source_location here = std::source_location::current()) {
  lockstep::test::cuda_on_cpu::synchronize_block(here);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, std::source_location here = std::source_location::current()) {
  using namespace lockstep::test::cuda_on_cpu;
  exchange(mask, Exchange::synchronize, 0, lane(), here);
}
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              std::source_location here = std::source_location::current()) {
  using namespace lockstep::test::cuda_on_cpu;
  return static_cast<unsigned>(exchange(mask, Exchange::ballot, predicate != 0, lane(), here));
}
inline int __any_sync(unsigned mask, int predicate, std::source_location here = std::source_location::current()) {
  return __ballot_sync(mask, predicate, here) != 0;
}
inline int __all_sync(unsigned mask, int predicate, std::source_location here = std::source_location::current()) {
  return __ballot_sync(mask, predicate, here) == mask;
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source, std::source_location here = std::source_location::current()) {
  return lockstep::test::cuda_on_cpu::read_lane(mask, value, static_cast<unsigned>(source) % 32, here);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, std::source_location here = std::source_location::current()) {
  using namespace lockstep::test::cuda_on_cpu;
  return read_lane(mask, value, lane() ^ static_cast<unsigned>(lanes), here);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned lanes,
                   std::source_location here = std::source_location::current()) {
  using namespace lockstep::test::cuda_on_cpu;
  return read_lane(mask, value, lane() + lanes < 32 ? lane() + lanes : lane(), here);
}
