/// \file
/// Sums in the order of a SummationTree, on the GPU. Enqueued on `stream` (a cudaStream_t); returns the launch's
/// cudaError_t. All arrays are device memory.
#pragma once

#include <cstddef>

#include "comm/summation_tree.hpp"

namespace lockstep::comm {

/// to[i] += from[i]
int enqueue_addition(void* stream, float* to, const float* from, std::size_t count) noexcept;

/// Subtrees in the order of steps_over_subtrees(), `stride` elements apart.
struct SubtreeSums {
  const float* first = nullptr;
  std::size_t stride = 0;
  const SummationTree::Step* steps = nullptr;
  int count = 0;  ///< number of steps and subtrees
};
/// to[i] = the sum of element i of all subtrees.
int enqueue_tree_sum(void* stream, float* to, const SubtreeSums& subtrees, std::size_t count) noexcept;

}  // namespace lockstep::comm
