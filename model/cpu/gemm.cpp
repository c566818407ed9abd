#include "model/cpu/gemm.hpp"

#include <algorithm>
#include <sstream>

#include <cblas.h>

#include <fmt/format.h>

#include "model/cpu/thin_products.hpp"

namespace lockstep::model::cpu {

namespace {

blasint blas_size(std::size_t value) { return static_cast<blasint>(value); }

CBLAS_TRANSPOSE blas_transpose(const Operand& operand) { return operand.transposed ? CblasTrans : CblasNoTrans; }

/// Below this many FLOPs a product is not worth waking a thread for (about 20 us of one core).
constexpr double kThreadingFlops = 2e6;
/// Threads get whole kernel tiles of rows.
constexpr std::size_t kRowGranule = 16;

}  // namespace

void gemm(const Operand& a, const Operand& b, Accumulate accumulate, const Tensor& c, ThreadPool& threads) {
  const auto rows = static_cast<std::size_t>(c.rows), columns = static_cast<std::size_t>(c.columns);
  const auto inner = static_cast<std::size_t>(a.columns());
  const auto out = c.elements<float>();
  if (rows == 0 || columns == 0) return;
  if (inner == 0) {
    if (accumulate == Accumulate::no) std::ranges::fill(out, 0.0f);
    return;
  }
  const auto left = a.matrix.elements<float>(), right = b.matrix.elements<float>();
  const auto left_stride = static_cast<std::size_t>(a.matrix.columns);
  const auto product_of_rows = [&](std::size_t begin, std::size_t end) {
    if (columns < kThin && !b.transposed) {
      if (a.transposed) return thin_product_of_transposed(left, right, out, rows, columns, begin, end, accumulate);
      return thin_product(left, right, out, inner, columns, begin, end, accumulate);
    }
    if (inner < kThin && !a.transposed && b.transposed) {
      return thin_inner_product(left, right, out, inner, columns, begin, end, accumulate);
    }
    cblas_sgemm(CblasRowMajor, blas_transpose(a), blas_transpose(b), blas_size(end - begin), blas_size(columns),
                blas_size(inner), 1.0f, left.data() + (a.transposed ? begin : begin * left_stride),
                blas_size(left_stride), right.data(), static_cast<blasint>(b.matrix.columns),
                accumulate == Accumulate::yes ? 1.0f : 0.0f, out.data() + begin * columns, blas_size(columns));
  };
  const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(inner);
  threads.split(rows, kRowGranule, flops < kThreadingFlops ? rows + 1 : 2 * kRowGranule, product_of_rows);
}

std::string prepare_gemm() {
  openblas_set_num_threads(1);
  std::istringstream config(openblas_get_config());
  std::string library, version;
  config >> library >> version;
  return fmt::format("{} {} {}", library, version, openblas_get_corename());
}

}  // namespace lockstep::model::cpu
