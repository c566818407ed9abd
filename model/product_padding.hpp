/// \file
/// Rows of whole packs for products in bfloat16.
///
/// Tensor cores are fed 16 bytes at a time. Rows of 50,257 or 1,001 elements of bfloat16 begin at other addresses, and
/// what the library has for them is several times slower. So a product that is worth it is made of copies: factors in
/// rows that zeros fill up, and a result whose surplus is left out when it is copied back. Zeros add nothing, so the
/// result is that of the product itself. Where a matrix lies in such rows already (logits, patches of images), it is
/// used as it is, and the others are made to fit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/tensor.hpp"

namespace lockstep::model {

/// To a multiple of 8 elements, of which 16 bytes are one pack; from 1,024 on to one of 128.
std::int64_t padded_columns(std::int64_t columns) noexcept;
/// Of patches and inner dimensions: to a multiple of 8.
std::int64_t whole_packs(std::int64_t columns) noexcept;
/// Columns of a network's output in bfloat16, by a layer whose weight is then padded whenever it is used: as many as
/// there are where these are whole packs, and where they are few, because a copy of what a few columns hold is cheaper.
/// The loss knows what is padding (LossOptions::classes).
std::int64_t padded_outputs(std::int64_t outputs) noexcept;

/// FLOPs per copied byte from which copies are worth it. An H100's memory moves the two bytes that a copied one costs
/// in the time of 590 FLOPs in bfloat16 at their peak, or 410 at 70 % of it; what is not aligned is assumed to take
/// four times as long, so that each FLOP saves three. Not measured.
inline constexpr double kFlopsPerCopiedByte = 140;

struct Extents {
  std::int64_t rows = 0, columns = 0;
  std::int64_t count() const noexcept { return rows * columns; }
  bool operator==(const Extents&) const = default;
};

/// out = a b or out += a b, as the matrices are stored; one that is transposed is so for the product alone. Where two
/// of them differ in the extent that they share, the smaller one is padded.
struct StoredProduct {
  ElementType in = ElementType::float32, result = ElementType::float32;
  Extents a, b, out;
  bool a_transposed = false, b_transposed = false;
};

/// Those that the product is made of; where they are not as stored, they are copies.
struct PaddedProduct {
  Extents a, b, out;
  bool copies_a = false, copies_b = false, copies_out = false;

  bool copies() const noexcept { return copies_a || copies_b || copies_out; }
  /// Of all copies, each at a multiple of 256; and of a bias that is as long as a copied result's rows.
  std::size_t bytes(const StoredProduct& product) const noexcept;
};
inline constexpr std::size_t kCopyAlignment = 256;

PaddedProduct padded(const StoredProduct& product, double worth = kFlopsPerCopiedByte) noexcept;

/// What the products of a linear map of so many rows take at most: forward, gradient of the weight, gradient of the
/// input; its input and output may lie in longer rows.
struct LinearMap {
  std::int64_t rows = 0, inputs = 0, outputs = 0;
  std::int64_t stored_inputs = 0, stored_outputs = 0;  ///< columns of x and y; 0: no others
};
std::size_t padding_bytes(const LinearMap& map, ElementType compute, ElementType master) noexcept;

}  // namespace lockstep::model
