#include <algorithm>

#include <cuda_runtime.h>

#include "comm/nccl/nccl_tree.hpp"

namespace lockstep::comm {
namespace {

constexpr unsigned kTreeThreads = 256;
constexpr std::size_t kMaxTreeBlocks = 4096;

__device__ std::size_t element_of_thread() { return static_cast<std::size_t>(blockIdx.x) * kTreeThreads + threadIdx.x; }
__device__ std::size_t elements_of_grid() { return static_cast<std::size_t>(gridDim.x) * kTreeThreads; }

__global__ void addition_kernel(float* to, const float* from, std::size_t count) {
  for (std::size_t i = element_of_thread(); i < count; i += elements_of_grid()) to[i] += from[i];
}

/// Like tree_sum_into() (comm/host/tree_sum.hpp), one element per thread. All elements have the same steps, and
/// therefore the same positions on the stack.
__global__ void tree_sum_kernel(float* to, SubtreeSums subtrees, std::size_t count) {
  float stack[SummationTree::kMaxDepth];
  for (std::size_t i = element_of_thread(); i < count; i += elements_of_grid()) {
    for (int k = 0; k < subtrees.count; ++k) {
      const SummationTree::Step step = subtrees.steps[k];
      float sum = subtrees.first[static_cast<std::size_t>(k) * subtrees.stride + i];
      for (int place = step.place + step.additions - 1; place >= step.place; --place) sum = stack[place] + sum;
      stack[step.place] = sum;
    }
    to[i] = stack[0];
  }
}

unsigned blocks_of_tree(std::size_t count) {
  return static_cast<unsigned>(std::min((count + kTreeThreads - 1) / kTreeThreads, kMaxTreeBlocks));
}

}  // namespace

int enqueue_addition(void* stream, float* to, const float* from, std::size_t count) noexcept {
  if (count == 0) return cudaSuccess;
  addition_kernel<<<blocks_of_tree(count), kTreeThreads, 0, static_cast<cudaStream_t>(stream)>>>(to, from, count);
  return cudaGetLastError();
}

int enqueue_tree_sum(void* stream, float* to, const SubtreeSums& subtrees, std::size_t count) noexcept {
  if (count == 0) return cudaSuccess;
  tree_sum_kernel<<<blocks_of_tree(count), kTreeThreads, 0, static_cast<cudaStream_t>(stream)>>>(to, subtrees, count);
  return cudaGetLastError();
}

}  // namespace lockstep::comm
