/// \file
/// Matrix products in bf16 with fp32 sums: blocked_gemm.hpp's interface, by the kernels of bf16/kernels.hpp. Packing
/// rounds the factors. Each element of c is a sum over the inner dimension in ascending order that begins with 0 or c,
/// so any partition of rows and columns gives the same bits.
///
/// Nothing stays packed from one training step to the next. A training step uses each packed form of a weight in one
/// product, except in recurrences (SharedFactor), so an update that wrote packed weights would write as many bytes as
/// the products save.
#pragma once

#include <cstddef>
#include <span>

#include "model/bf16_unit.hpp"
#include "model/cpu/bf16/number.hpp"
#include "model/cpu/bf16/panels.hpp"
#include "model/cpu/blocked_gemm.hpp"
#include "model/operation_types.hpp"

namespace lockstep::model::cpu {

/// c = a b or c += a b; rows of c are `stride` elements apart. The calling thread allocates memory for its panels (2.7
/// MiB) at its first product and keeps it until the thread ends. No extent may be zero.
void bf16_gemm(Bf16Unit unit, const ProductShape& shape, const Bf16Factor& a, const Bf16Factor& b,
               Accumulate accumulate, float* c, std::size_t stride, const Finish& finish = {});

/// bf16_gemm() that passes the sums to `take`. place: position of the first sum in the whole result.
struct SumsPlace {
  std::size_t row = 0, column = 0;
};
void bf16_product(Bf16Unit unit, const ProductShape& shape, const Bf16Factor& a, const Bf16Factor& b,
                  const SumsPlace& place, const TakeSums& take);

/// A right factor [inner, columns], packed in panels that many GEMMs share. The caller owns the memory.
struct Bf16PackedFactor {
  const Bf16* data = nullptr;  ///< aligned to 64 bytes
  std::size_t inner = 0, columns = 0;
};
/// Size of this memory in floats.
std::size_t bf16_packed_floats(std::size_t inner, std::size_t columns) noexcept;
Bf16PackedFactor bf16_pack_right(Bf16Unit unit, const Bf16Factor& b, std::size_t inner, std::size_t columns,
                                 std::span<float> workspace);
/// bf16_gemm with a part of b: c [rows, columns] = or += a [rows, inner] times rows [0, inner) and columns [begin,
/// begin + columns) of b. begin is a multiple of kPackedGranule. Rows of b from `inner` up to the next multiple of
/// kPackedGranule are multiplied by zero and must be finite. `order` only matters for up to 32 rows.
void bf16_product_with_packed(Bf16Unit unit, const ProductShape& shape, const Bf16Factor& a, const Bf16PackedFactor& b,
                              std::size_t begin, Accumulate accumulate, float* c, std::size_t stride,
                              PanelOrder order = PanelOrder::ascending);

}  // namespace lockstep::model::cpu
