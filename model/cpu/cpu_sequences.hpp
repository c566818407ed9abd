/// \file
/// The CPU's operations on sequences: fp32, with matrix multiplications through gemm() (which may round to bf16) and
/// our own vectorised loops for everything else. Values that dense layers read or write may be stored in bf16.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "model/bf16_unit.hpp"
#include "model/cpu/thread_pool.hpp"
#include "model/sequence_operations.hpp"

namespace lockstep::model::cpu {

class CpuSequences final : public SequenceOperations {
 public:
  /// The pool must outlive the object. Workspace grows at the first call of each shape.
  CpuSequences(ThreadPool& threads, Bf16Unit unit)
      : SequenceOperations({.narrow = unit == Bf16Unit::none ? ElementType::float32 : ElementType::bfloat16}),
        threads_(threads),
        unit_(unit) {}

 private:
  LOCKSTEP_SEQUENCE_OPERATIONS(void, override)

  /// Workspace of `elements` floats, valid until the next call.
  std::span<float> workspace(std::size_t elements);

  ThreadPool& threads_;
  const Bf16Unit unit_;
  std::vector<float> workspace_;
};

}  // namespace lockstep::model::cpu
