/// \file
/// Gradients of a linear map in bf16: the two products that share the gradient of its output. It goes from memory
/// through the caches once: block by block it is prepared, rounded, and multiplied twice.
///
///   for columns of d_y, if rows are long:   pack w^T
///     for rows of d_y:                      prepare (bias, activation), pack the block as left and as right factor
///       d_x of these rows = or += block w^T
///       d_w of these columns = or += x^T block
///
/// Sums are in ascending order over the inner dimension, as in bf16/gemm.hpp, and have the same bits.
#pragma once

#include <cstddef>

#include "model/bf16_unit.hpp"
#include "model/cpu/bf16/panels.hpp"
#include "model/cpu/thread_pool.hpp"
#include "model/operation_types.hpp"

namespace lockstep::model::cpu {

/// x [rows, inputs], w [inputs, outputs], d_y [rows, outputs], d_w [inputs, outputs], d_x [rows, inputs]; row-major.
struct Bf16Gradients {
  std::size_t rows = 0, inputs = 0, outputs = 0;
  Bf16Factor x;
  const float* w = nullptr;
  Bf16Factor d_y;
  float* d_w = nullptr;            ///< nullptr: not wanted
  float* d_x = nullptr;            ///< likewise
  const TakeSums* take = nullptr;  ///< takes d_x instead
};

/// Called once for each part of d_y before it is read: rows [row, row + rows), columns [begin, end). The calls for one
/// column come in the order of the rows, on one thread at a time.
class Prepare {
 public:
  template <class Work>
  explicit Prepare(const Work& work)
      : context_(&work),
        call_([](const void* context, std::size_t row, std::size_t rows, std::size_t begin, std::size_t end) {
          (*static_cast<const Work*>(context))(row, rows, begin, end);
        }) {}
  void operator()(std::size_t row, std::size_t rows, std::size_t begin, std::size_t end) const {
    call_(context_, row, rows, begin, end);
  }

 private:
  const void* context_;
  void (*call_)(const void* context, std::size_t row, std::size_t rows, std::size_t begin, std::size_t end);
};

/// `accumulate` is about d_w; d_x is overwritten. `finish` gets parts of d_x, on several threads at once. No extent may
/// be zero. Memory: a block of d_y twice (1.5 MiB), the part of w that its columns meet, and a block of x or, of up to
/// 768 long rows, all of it, in bf16; with `take` and long rows also d_x in fp32.
void bf16_gradients(Bf16Unit unit, const Bf16Gradients& operands, Accumulate accumulate, const Prepare& prepare,
                    const Finish& finish, PanelMemory& memory, ThreadPool& threads);

}  // namespace lockstep::model::cpu
