/// \file
/// Sequences on the CPU: fp32, matrix multiplications through gemm(), everything else in our own vectorised loops.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "model/cpu/thread_pool.hpp"
#include "model/sequence_operations.hpp"

namespace lockstep::model::cpu {

class CpuSequences final : public SequenceOperations {
 public:
  /// The pool must outlive it. Workspace for intermediate results grows with the first call of each shape.
  explicit CpuSequences(ThreadPool& threads) : SequenceOperations(OperationTypes{}), threads_(threads) {}

 private:
  LOCKSTEP_SEQUENCE_OPERATIONS(void, override)

  /// Workspace of `elements` floats, valid until the next call.
  std::span<float> workspace(std::size_t elements);

  ThreadPool& threads_;
  std::vector<float> workspace_;
};

}  // namespace lockstep::model::cpu
