/// \file
/// The one seam to a matrix multiplication. Everything dense that the CPU multiplies goes through here: thin GEMMs
/// (thin_gemm.hpp), our own blocked product (blocked_gemm.hpp) where the processor has its instructions, the
/// BLAS elsewhere.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "model/backend.hpp"
#include "model/cpu/blocked_gemm.hpp"
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
/// becomes zero or stays. The rows or the columns of c are cut among the threads; which kernel runs is decided by the
/// shape and the processor alone, never by timing, so that equal calls give equal bits; with our own kernels any number
/// of threads gives the same ones.
void gemm(const Operand& a, const Operand& b, Accumulate accumulate, const Tensor& c, ThreadPool& threads);

/// The same of any part of a matrix, on the calling thread: c [rows, columns] = or += a b; rows of c are `stride`
/// elements apart. Nothing may be zero.
void multiply(const ProductShape& shape, const Factor& a, const Factor& b, Accumulate accumulate, float* c,
              std::size_t stride);

/// A right factor b [inner, columns] that many GEMMs share. Where our own GEMM runs it is packed once, into
/// memory of the caller that stays until the last of them; else it is read where it lies.
class SharedFactor {
 public:
  /// Columns of a result are cut at multiples of it.
  static constexpr std::size_t kGranule = kPackedGranule;
  static std::size_t workspace(std::size_t inner, std::size_t columns) noexcept {
    return packed_elements(inner, columns);
  }
  SharedFactor(const Factor& b, std::size_t inner, std::size_t columns, std::span<float> workspace);

  /// c [rows, columns] = or += a [rows, inner] and the first `inner` rows and the columns [begin, begin + columns) of
  /// b, on the calling thread. begin is a multiple of kGranule. Nothing may be zero.
  void multiply(const ProductShape& shape, const Factor& a, std::size_t begin, Accumulate accumulate, float* c,
                std::size_t stride) const;

 private:
  Factor factor_;
  PackedFactor packed_;  ///< no data: not packed
};

/// "OpenBLAS 0.3.21 Haswell": the library, its version, and the processor that it takes this one for.
std::string blas_library();
/// "own products x86-64-v4", or blas_library() where there are none for this processor.
std::string gemm_code();
/// Sets the library to one thread, for the whole process: the threads are ours.
void prepare_gemm();

}  // namespace lockstep::model::cpu
