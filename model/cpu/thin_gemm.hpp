/// \file
/// Matrix products with one extent below 16, the columns of a BLAS kernel's tile: the last layer of a classifier (512
/// -> 10) or of a regression (128 -> 1). OpenBLAS packs the operands of such products as for large ones, and reaches
/// only a few GFLOP/s with one column. These functions read each operand once. fp32, single thread, on rows [begin,
/// end) of the result.
///
///   y = x w        [B, I] [I, n]     thin_product          n in the lanes (padded to 4, 8 or 16), x broadcast
///   d_w = x^T d_y  [I, B] [B, n]     thin_product_of_transposed   I in the lanes
///   d_x = d_y w^T  [B, n] [n, I]     thin_inner_product    I in the lanes, w turned once per block
#pragma once

#include <cstddef>
#include <span>

#include "model/backend.hpp"

namespace lockstep::model::cpu {

/// A product is thin if it has fewer columns than this (thin_inner_product: a smaller inner dimension).
constexpr std::size_t kThin = 16;

/// c [., n] = or += a [., inner] b [inner, n], n < kThin.
void thin_product(std::span<const float> a, std::span<const float> b, std::span<float> c, std::size_t inner,
                  std::size_t n, std::size_t begin, std::size_t end, Accumulate accumulate);

/// c [rows, n] = or += a^T b with a [inner, rows], b [inner, n], n < kThin.
void thin_product_of_transposed(std::span<const float> a, std::span<const float> b, std::span<float> c,
                                std::size_t rows, std::size_t n, std::size_t begin, std::size_t end,
                                Accumulate accumulate);

/// c [., columns] = or += a [., inner] b^T with b [columns, inner], inner < kThin.
void thin_inner_product(std::span<const float> a, std::span<const float> b, std::span<float> c, std::size_t inner,
                        std::size_t columns, std::size_t begin, std::size_t end, Accumulate accumulate);

}  // namespace lockstep::model::cpu
