/// \file
/// Rows of whole packs for products in bfloat16.
///
/// Tensor cores are fed 16 bytes at a time. Rows of 50,257 or 1,001 elements of bfloat16 begin at other addresses, and
/// the library's kernels for them are several times slower. So a product that is large enough uses copies: factors in
/// rows filled up with zeros, and a result whose surplus is dropped when it is copied back. Zeros add nothing, so the
/// result is that of the product itself. A matrix that lies in such rows already (logits, patches of images) is used as
/// it is, and the others are made to fit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/tensor.hpp"

namespace lockstep::model {

/// Rounds up to a multiple of 8 elements, a pack of 16 bytes; from 1,024 on to a multiple of 128.
std::int64_t padded_columns(std::int64_t columns) noexcept;
/// Rounds patches and inner dimensions up to a multiple of 8.
std::int64_t whole_packs(std::int64_t columns) noexcept;
/// Columns of a network's output in bfloat16, made by a layer whose weight is then padded whenever it is used. No
/// padding if the columns are whole packs already, or so few that copying them is cheaper. The loss ignores the padding
/// (LossOptions::classes).
std::int64_t padded_outputs(std::int64_t outputs) noexcept;

/// FLOPs per copied byte above which copies pay. An H100's memory moves the two bytes that a copied one costs in the
/// time of 590 FLOPs in bfloat16 at their peak, or 410 at 70 % of it. We assume that an unaligned product takes four
/// times as long, so each FLOP saves three. Not measured.
inline constexpr double kFlopsPerCopiedByte = 140;

struct Extents {
  std::int64_t rows = 0, columns = 0;
  std::int64_t count() const noexcept { return rows * columns; }
  bool operator==(const Extents&) const = default;
};

/// out = a b or out += a b, as the matrices are stored; a transposed one is so for the product alone. If two of them
/// differ in the extent that they share, the smaller one is padded.
struct StoredProduct {
  ElementType in = ElementType::float32, result = ElementType::float32;
  Extents a, b, out;
  bool a_transposed = false, b_transposed = false;
};

/// The operands of the actual product; those that differ from the stored ones are copies.
struct PaddedProduct {
  Extents a, b, out;
  bool copies_a = false, copies_b = false, copies_out = false;

  bool copies() const noexcept { return copies_a || copies_b || copies_out; }
  /// Memory of all copies, each at a multiple of 256, and of a bias as long as a copied result's rows.
  std::size_t bytes(const StoredProduct& product) const noexcept;
};
inline constexpr std::size_t kCopyAlignment = 256;

PaddedProduct padded(const StoredProduct& product, double worth = kFlopsPerCopiedByte) noexcept;

/// Largest memory for the products of a linear map with this many rows: forward, gradient of the weight, gradient of
/// the input; its input and output may lie in longer rows.
struct LinearMap {
  std::int64_t rows = 0, inputs = 0, outputs = 0;
  std::int64_t stored_inputs = 0, stored_outputs = 0;  ///< columns of x and y; 0: no padding
};
std::size_t padding_bytes(const LinearMap& map, ElementType compute, ElementType master) noexcept;

}  // namespace lockstep::model
