/// \file
/// The one seam to a matrix product. Everything that a BLAS does for Lockstep goes through here.
#pragma once

#include <cstddef>
#include <string>

#include "model/backend.hpp"
#include "model/cpu/thread_pool.hpp"

namespace lockstep::model::cpu {

/// A row-major fp32 matrix whose rows are contiguous one after another, and whether the product uses its transpose.
struct Operand {
  const Tensor& matrix;
  bool transposed = false;
  std::int64_t rows() const noexcept { return transposed ? matrix.columns : matrix.rows; }
  std::int64_t columns() const noexcept { return transposed ? matrix.rows : matrix.columns; }
};

/// c = a b (Accumulate::no) or c += a b, fp32, 2 rows(a) columns(a) columns(b) FLOPs. With an empty inner dimension c
/// becomes zero or stays. The rows of c are cut among the threads; which kernel runs is decided by the shape alone (see
/// thin_products.hpp), never by timing, so that equal calls give equal bits.
void gemm(const Operand& a, const Operand& b, Accumulate accumulate, const Tensor& c, ThreadPool& threads);

/// "OpenBLAS 0.3.21 Haswell". Also sets the library to one thread, for the whole process: the threads are ours.
std::string prepare_gemm();

}  // namespace lockstep::model::cpu
