#include "model/cpu/gemm.hpp"

#include <algorithm>
#include <cassert>
#include <sstream>

#include <cblas.h>
#include <fmt/format.h>

#include "model/cpu/thin_gemm.hpp"

namespace lockstep::model::cpu {

namespace {

blasint blas_size(std::size_t value) { return static_cast<blasint>(value); }

CBLAS_TRANSPOSE blas_transpose(const Factor& factor) { return factor.transposed ? CblasTrans : CblasNoTrans; }

/// Smallest product that uses several threads, in FLOPs (about 20 us of one core).
constexpr double kThreadingFlops = 2e6;
/// Threads get whole tiles of rows or of columns.
constexpr std::size_t kRowGranule = 12;
constexpr std::size_t kColumnGranule = 32;

Bf16Factor factor_of(const Operand& operand) {
  return {operand.matrix, 0, static_cast<std::size_t>(operand.matrix.columns), operand.transposed};
}

Factor in_fp32(const Bf16Factor& factor) {
  assert(factor.halves == nullptr);
  return {factor.floats, factor.stride, factor.transposed};
}

}  // namespace

void multiply(const ProductShape& shape, const Bf16Factor& left, const Bf16Factor& right, Accumulate accumulate,
              float* c, std::size_t stride, Bf16Unit unit, const Finish& finish) {
  if (unit != Bf16Unit::none) return bf16_gemm(unit, shape, left, right, accumulate, c, stride, finish);
  const Factor a = in_fp32(left), b = in_fp32(right);
  if (blocked_gemm_instruction_set() != nullptr) return blocked_gemm(shape, a, b, accumulate, c, stride, finish);
  cblas_sgemm(CblasRowMajor, blas_transpose(a), blas_transpose(b), blas_size(shape.rows), blas_size(shape.columns),
              blas_size(shape.inner), 1.0f, a.data, blas_size(a.stride), b.data, blas_size(b.stride),
              accumulate == Accumulate::yes ? 1.0f : 0.0f, c, blas_size(stride));
  finish(c, shape.rows, shape.columns);
}

void gemm(const Operand& a, const Operand& b, Accumulate accumulate, const Tensor& c, ThreadPool& threads,
          Bf16Unit unit, const Finish& finish) {
  const auto rows = static_cast<std::size_t>(c.rows), columns = static_cast<std::size_t>(c.columns);
  const auto inner = static_cast<std::size_t>(a.columns());
  const auto out = c.elements<float>();
  if (rows == 0 || columns == 0) return;
  if (inner == 0) {
    if (accumulate == Accumulate::no) std::ranges::fill(out, 0.0f);
    return finish(out.data(), rows, columns);
  }
  const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(inner);
  const bool thin_result = columns < kThin && !b.transposed;
  const bool thin_inner = inner < kThin && !a.transposed && b.transposed;
  if (thin_result || thin_inner) {
    const auto left = a.matrix.elements<float>(), right = b.matrix.elements<float>();
    return threads.split(rows, kThin, flops < kThreadingFlops ? rows + 1 : 2 * kThin,
                         [&](std::size_t begin, std::size_t end) {
                           if (thin_inner) {
                             thin_inner_product(left, right, out, inner, columns, begin, end, accumulate);
                           } else if (a.transposed) {
                             thin_product_of_transposed(left, right, out, rows, columns, begin, end, accumulate);
                           } else {
                             thin_product(left, right, out, inner, columns, begin, end, accumulate);
                           }
                           finish(out.data() + begin * columns, end - begin, columns);
                         });
  }
  const Bf16Factor left = factor_of(a), right = factor_of(b);
  const bool is_small = flops < kThreadingFlops;
  // Splits the larger extent, because each thread packs the factor that is not split.
  if (columns > rows) {
    return threads.split(columns, kColumnGranule, is_small ? columns + 1 : 2 * kColumnGranule,
                         [&](std::size_t begin, std::size_t end) {
                           multiply({rows, end - begin, inner}, left, right.from(0, begin), accumulate,
                                    out.data() + begin, columns, unit, finish);
                         });
  }
  const std::size_t granule = unit == Bf16Unit::none ? kRowGranule : kPackedGranule;
  threads.split(rows, granule, is_small ? rows + 1 : 2 * granule, [&](std::size_t begin, std::size_t end) {
    multiply({end - begin, columns, inner}, left.from(begin, 0), right, accumulate, out.data() + begin * columns,
             columns, unit, finish);
  });
}

SharedFactor::SharedFactor(const Bf16Factor& b, std::size_t inner, std::size_t columns, std::span<float> workspace,
                           Bf16Unit unit)
    : unit_(unit) {
  if (unit != Bf16Unit::none) {
    bf16_packed_ = bf16_pack_right(unit, b, inner, columns, workspace);
    return;
  }
  factor_ = in_fp32(b);
  if (blocked_gemm_instruction_set() != nullptr) packed_ = pack_right(factor_, inner, columns, workspace);
}

void SharedFactor::multiply(const ProductShape& shape, const Bf16Factor& a, std::size_t begin, Accumulate accumulate,
                            float* c, std::size_t stride, PanelOrder order) const {
  if (unit_ != Bf16Unit::none) {
    return bf16_product_with_packed(unit_, shape, a, bf16_packed_, begin, accumulate, c, stride, order);
  }
  if (packed_.data == nullptr) return cpu::multiply(shape, a, factor_.from(0, begin), accumulate, c, stride, unit_);
  product_with_packed(shape, in_fp32(a), packed_, begin, accumulate, c, stride, order);
}

void prepare_gemm() { openblas_set_num_threads(1); }

std::string gemm_code(Bf16Unit unit) {
  if (unit != Bf16Unit::none) return fmt::format("own products in bf16 by {}", describe(unit));
  if (const char* const set = blocked_gemm_instruction_set()) return fmt::format("own products {}", set);
  return blas_library();
}

std::string blas_library() {
  std::istringstream config(openblas_get_config());
  std::string library, version;
  config >> library >> version;
  return fmt::format("{} {} {}", library, version, openblas_get_corename());
}

}  // namespace lockstep::model::cpu
