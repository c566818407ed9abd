/// \file
/// Matrix products in bf16 with fp32 sums: blocked_gemm.hpp's interface, by the kernels of bf16/kernels.hpp. The
/// factors are rounded while they are packed; each element of c is a sum over the inner dimension in ascending order
/// that begins with 0 or c, so any partition of rows and columns gives the same bits.
///
/// Nothing stays packed from step to step. A step uses each packed form of a weight in one product, but for recurrent
/// steps (SharedFactor): the update would write as many bytes as the products then save.
#pragma once

#include <cstddef>
#include <span>

#include "model/bf16_unit.hpp"
#include "model/cpu/bf16/number.hpp"
#include "model/cpu/bf16/panels.hpp"
#include "model/cpu/blocked_gemm.hpp"
#include "model/operation_types.hpp"

namespace lockstep::model::cpu {

/// c = a b or c += a b; rows of c are `stride` elements apart. The calling thread keeps memory for its panels (2.7 MiB)
/// from its first product until it ends. No extent may be zero.
void bf16_gemm(Bf16Unit unit, const ProductShape& shape, const Bf16Factor& a, const Bf16Factor& b,
               Accumulate accumulate, float* c, std::size_t stride, const Finish& finish = {});

/// The same, with sums that go to `take`; place: of the first one in the whole result.
struct SumsPlace {
  std::size_t row = 0, column = 0;
};
void bf16_product(Bf16Unit unit, const ProductShape& shape, const Bf16Factor& a, const Bf16Factor& b,
                  const SumsPlace& place, const TakeSums& take);

/// A right factor [inner, columns] in panels that many GEMMs share; the caller owns the memory.
struct Bf16PackedFactor {
  const Bf16* data = nullptr;  ///< aligned to 64 bytes
  std::size_t inner = 0, columns = 0;
};
/// Size of that memory in floats.
std::size_t bf16_packed_floats(std::size_t inner, std::size_t columns) noexcept;
Bf16PackedFactor bf16_pack_right(Bf16Unit unit, const Bf16Factor& b, std::size_t inner, std::size_t columns,
                                 std::span<float> workspace);
/// bf16_gemm with a submatrix of b: c [rows, columns] = or += a [rows, inner] and the first `inner` rows and the
/// columns [begin, begin + columns) of b. begin is a multiple of kPackedGranule. The elements of b up to the next
/// multiple of kPackedGranule of `inner` must be finite: they are multiplied by zero. `order` is about up to 32 rows.
void bf16_product_with_packed(Bf16Unit unit, const ProductShape& shape, const Bf16Factor& a, const Bf16PackedFactor& b,
                              std::size_t begin, Accumulate accumulate, float* c, std::size_t stride,
                              PanelOrder order = PanelOrder::ascending);

}  // namespace lockstep::model::cpu
