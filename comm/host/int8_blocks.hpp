/// \file
/// Floats on the wire as 8-bit integers with a scale per block (block floating point): 1/4 of the bytes, plus 1/64 of
/// that for the scales. Vectorised; the result does not depend on the vector width.
#pragma once

#include <cstddef>

namespace lockstep::comm {

/// Elements per scale; their largest magnitude determines it. The scale is a power of two. Packed numbers are exact
/// multiples of it, so packing them again gives the same bits.
inline constexpr std::size_t kInt8Block = 64;

/// Packed elements in memory: one signed byte each, then one byte for the scale of each block of 64; the last block may
/// be shorter. A block with an element that is not finite, or within 1/256 of the largest float, unpacks to NaNs.
struct Int8Blocks {
  std::byte first;

  static constexpr std::size_t bytes(std::size_t elements) {
    return elements + (elements + kInt8Block - 1) / kInt8Block;
  }
  /// Number of elements of the whole blocks that fit `bytes`.
  static constexpr std::size_t elements(std::size_t bytes) { return bytes / (kInt8Block + 1) * kInt8Block; }
};

/// packed = values, rounded to nearest, ties to even. With `errors` (may be nullptr), errors[i] = values[i] - the
/// unpacked value, or 0 in a block that is not finite. Values of magnitude below 2^-120 may become 0.
void pack(Int8Blocks* packed, const float* values, float* errors, std::size_t count);
/// Replaces values[i] by its packed and unpacked value; `errors` as in pack().
void pack_in_place(float* values, float* errors, std::size_t count);
/// values[i] = packed[i].
void unpack(float* values, const Int8Blocks* packed, std::size_t count);
/// sum[i] += packed[i].
void add_unpacked(float* sum, const Int8Blocks* packed, std::size_t count);

}  // namespace lockstep::comm
