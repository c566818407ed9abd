/// \file
/// Runs CUDA kernels on the host: force-included in front of a .cu file that a C++ compiler compiles (CMake does so),
/// it gives kernels the language they are written in, and run_grid() of model/cuda/launch.cuh runs their grids. A
/// kernel is then a function that one thread runs; the threads of a block are fibers, and block follows block.
///
/// What it finds: wrong indices and bounds (with guards around tensors, or under AddressSanitizer), wrong results,
/// shared memory that is read before it is written (it starts as NaN), written past its end, or kept from one block to
/// the next, barriers and shuffles that not all threads reach or that they reach at different places, and results that
/// depend on the order in which threads or blocks run, where an order that is tried shows it.
///
/// What it does not know: the GPU's memory model and its timing. A thread is only interrupted at barriers and shuffles,
/// so a race between two barriers is seen only if it matters which thread is first from one to the other (under
/// ThreadSanitizer it is seen in any order: there the threads of a block are ordered by __syncthreads and __syncwarp
/// alone); caches, alignment faults (but packs.cuh looks at its own accesses), registers, and what compilers do with
/// code for a GPU are not here at all. It is no substitute for a run on one.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <span>
#include <stdexcept>
#include <string>

#include "model/cuda/kernels.hpp"

namespace lockstep::model::cuda {
struct KernelArgument;
}  // namespace lockstep::model::cuda

namespace lockstep::test {

/// A kernel broke a rule of the language: the text names the kernel, its block and what the threads were doing.
class KernelFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The order in which threads of a block and blocks of a grid run: 0 as they are numbered, 1 the other way round, from
/// 2 on shuffled with this seed.
void order_threads(std::uint32_t seed);
/// Grids run since the program started.
std::int64_t grids_run();
/// A grid that was launched, on its way to a stream: `run` runs it. Without a receiver grids are run at once.
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
/// Of the thread that runs now.
const Place& place();

void synchronize_block(const Here& here);
enum class Exchange { synchronize, ballot, read };
/// What `source` handed in, when all lanes of the mask have come to the same place; ballot: lanes that handed in other
/// than 0.
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
