/// \file
/// Pads the rows of matrices to whole packs of 16 bytes, for products in bfloat16.
///
/// Tensor cores read 16 bytes at a time. Rows of 50,257 or 1,001 elements of bfloat16 do not begin at multiples of 16
/// bytes, and the library's kernels for them are several times slower. So a large enough product uses copies: factors
/// whose rows are filled up with zeros, and a result whose surplus is dropped when it is copied back. Zeros do not
/// change the sums. A matrix that is stored in padded rows (logits, patches of images) needs no copy; the other
/// matrices are padded to match it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/tensor.hpp"

namespace lockstep::model {

/// Rounds up to a multiple of 8 elements, a pack of 16 bytes; from 1,024 on to a multiple of 128.
std::int64_t padded_columns(std::int64_t columns) noexcept;
/// Rounds patches and inner dimensions up to a multiple of 8.
std::int64_t whole_packs(std::int64_t columns) noexcept;
/// Returns the number of columns of a network's output in bfloat16, with padding. The layer that computes the output
/// pads its weight at each use. There is no padding if the columns are whole packs, or so few that a copy is cheaper.
/// The loss ignores the padding (LossOptions::classes).
std::int64_t padded_outputs(std::int64_t outputs) noexcept;

/// FLOPs per copied byte above which copies are worth their cost. A copied byte moves two bytes of memory. On an H100
/// this takes as long as 590 FLOPs in bfloat16 at peak, or 410 at 70 % of it. We assume that an unaligned product takes
/// four times as long, so each FLOP saves three. Not measured.
inline constexpr double kFlopsPerCopiedByte = 140;

struct Extents {
  std::int64_t rows = 0, columns = 0;
  std::int64_t count() const noexcept { return rows * columns; }
  bool operator==(const Extents&) const = default;
};

/// out = a b or out += a b. Extents are those of the stored matrices; a_transposed and b_transposed transpose them for
/// the product. If two matrices differ in a common extent, the smaller one is padded.
struct StoredProduct {
  ElementType in = ElementType::float32, result = ElementType::float32;
  Extents a, b, out;
  bool a_transposed = false, b_transposed = false;
};

/// Extents of the product that is computed. Matrices whose extents differ from the stored ones are copied.
struct PaddedProduct {
  Extents a, b, out;
  bool copies_a = false, copies_b = false, copies_out = false;

  bool copies() const noexcept { return copies_a || copies_b || copies_out; }
  /// Bytes of all copies, each at a multiple of 256 bytes, and of a padded bias if the result is copied.
  std::size_t bytes(const StoredProduct& product) const noexcept;
};
inline constexpr std::size_t kCopyAlignment = 256;

PaddedProduct padded(const StoredProduct& product, double worth = kFlopsPerCopiedByte) noexcept;

/// A linear map over this many rows, whose input and output may be stored in longer rows.
struct LinearMap {
  std::int64_t rows = 0, inputs = 0, outputs = 0;
  std::int64_t stored_inputs = 0, stored_outputs = 0;  ///< columns of x and y; 0: no padding
};
std::size_t padding_bytes(const LinearMap& map, ElementType compute, ElementType master) noexcept;

}  // namespace lockstep::model
