/// \file
/// Gradients of a linear map in bf16: the two products that share d_y, the gradient of its output. d_y is read from
/// memory once: each block is prepared, rounded and multiplied twice while it is in the caches.
///
///   for columns of d_y, if rows are long:   pack w^T
///     for rows of d_y:                      prepare (bias, activation), pack the block as left and as right factor
///       d_x of these rows = or += block w^T
///       d_w of these columns = or += x^T block
///
/// Sums run in ascending order over the inner dimension and have the same bits as in bf16/gemm.hpp.
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
  float* d_w = nullptr;            ///< nullptr: not computed
  float* d_x = nullptr;            ///< nullptr: not computed, unless `take` is present
  const TakeSums* take = nullptr;  ///< receives d_x instead of writing it
};

/// Callback for each part of d_y before it is read: rows [row, row + rows), columns [begin, end). Each part is prepared
/// once. Calls for one column come in ascending order of rows, on one thread at a time.
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

/// accumulate applies to d_w; d_x is overwritten. finish: receives parts of d_x, on several threads at once. No extent
/// may be zero. Allocates in bf16: two copies of a block of d_y (1.5 MiB), the part of w for its columns, and a block
/// of x (all of x for up to 768 long rows); with `take` and long rows also d_x in fp32.
void bf16_gradients(Bf16Unit unit, const Bf16Gradients& operands, Accumulate accumulate, const Prepare& prepare,
                    const Finish& finish, PanelMemory& memory, ThreadPool& threads);

}  // namespace lockstep::model::cpu
