/// \file
/// The only interface to matrix multiplication: every dense product of the CPU goes through it. It selects thin GEMMs
/// (thin_gemm.hpp), our own blocked product (blocked_gemm.hpp) if the processor has its instructions, or else the BLAS.
/// With a Bf16Unit, factors are rounded to bf16 (bf16/gemm.hpp), except in thin GEMMs, which memory bandwidth limits.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "model/backend.hpp"
#include "model/bf16_unit.hpp"
#include "model/cpu/bf16/gemm.hpp"
#include "model/cpu/blocked_gemm.hpp"
#include "model/cpu/thread_pool.hpp"

namespace lockstep::model::cpu {

/// A factor: a row-major matrix with contiguous rows, used as it is or transposed. In fp32; also in bf16 for products
/// with a Bf16Unit that are not thin.
struct Operand {
  const Tensor& matrix;
  bool transposed = false;
  std::int64_t rows() const noexcept { return transposed ? matrix.columns : matrix.rows; }
  std::int64_t columns() const noexcept { return transposed ? matrix.rows : matrix.columns; }
};

/// c = a b (Accumulate::no) or c += a b, fp32, 2 rows(a) columns(a) columns(b) FLOPs. With an empty inner dimension, c
/// becomes zero or does not change. The threads split the rows or the columns of c. The kernel depends on the shape and
/// the processor, not on timing, so equal calls give equal bits. Our own kernels give the same bits with any number of
/// threads. `finish` may run on several threads at once.
void gemm(const Operand& a, const Operand& b, Accumulate accumulate, const Tensor& c, ThreadPool& threads,
          Bf16Unit unit, const Finish& finish = {});

/// gemm() for submatrices, on the calling thread: c [rows, columns] = or += a b; rows of c are `stride` elements apart.
/// No extent may be zero. With a Bf16Unit, factors may be in bf16.
void multiply(const ProductShape& shape, const Bf16Factor& a, const Bf16Factor& b, Accumulate accumulate, float* c,
              std::size_t stride, Bf16Unit unit, const Finish& finish = {});

/// A right factor b [inner, columns] that many GEMMs share. Our own GEMM packs it once, into the workspace of the
/// caller, which must outlive this object; the BLAS reads b in place.
class SharedFactor {
 public:
  /// Columns of a result must be partitioned at multiples of this.
  static constexpr std::size_t kGranule = kPackedGranule;
  static std::size_t workspace(std::size_t inner, std::size_t columns, Bf16Unit unit) noexcept {
    return unit == Bf16Unit::none ? packed_elements(inner, columns) : bf16_packed_floats(inner, columns);
  }
  SharedFactor(const Bf16Factor& b, std::size_t inner, std::size_t columns, std::span<float> workspace, Bf16Unit unit);

  /// c [rows, columns] = or += a [rows, inner] times rows [0, inner) and columns [begin, begin + columns) of b, on the
  /// calling thread. begin is a multiple of kGranule. No extent may be zero. `order` only affects speed.
  void multiply(const ProductShape& shape, const Bf16Factor& a, std::size_t begin, Accumulate accumulate, float* c,
                std::size_t stride, PanelOrder order = PanelOrder::ascending) const;

 private:
  Factor factor_;
  Bf16Unit unit_;
  PackedFactor packed_;  ///< data == nullptr: not packed
  Bf16PackedFactor bf16_packed_;
};

/// Returns the BLAS, its version, and the processor that it detected: "OpenBLAS 0.3.21 Haswell".
std::string blas_library();
/// Returns "own products x86-64-v4", "own products in bf16 by AVX512-BF16", or blas_library() if we have no kernels for
/// this processor.
std::string gemm_code(Bf16Unit unit = Bf16Unit::none);
/// Sets the BLAS to one thread for the whole process, because we use our own threads.
void prepare_gemm();

}  // namespace lockstep::model::cpu
