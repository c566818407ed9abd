/// \file
/// Floats on the wire as 8-bit integers with a scale for each block (block floating point): a quarter of the bytes, and
/// 1/64 more. Vectorised; the result does not depend on the vector width.
#pragma once

#include <cstddef>

namespace lockstep::comm {

/// Elements whose largest magnitude is the scale of all. The scale is a power of two, so that what has been packed once
/// packs to the same bits again: a number and its block are then exact multiples of it.
inline constexpr std::size_t kInt8Block = 64;

/// Packed elements in memory: as many signed bytes, then one byte for the scale of each block of 64; the last block may
/// be shorter. A block with an element that is not finite, or within 1/256 of the largest float, is unpacked as NaNs.
struct Int8Blocks {
  std::byte first;

  static constexpr std::size_t bytes(std::size_t elements) {
    return elements + (elements + kInt8Block - 1) / kInt8Block;
  }
  /// Whole blocks in so many bytes.
  static constexpr std::size_t elements(std::size_t bytes) { return bytes / (kInt8Block + 1) * kInt8Block; }
};

/// packed = values to the nearest, ties to even; with `errors` (may be nullptr) errors[i] = values[i] - what is
/// unpacked, or 0 in a block that is not finite. Of values below 2^-120 of magnitude nothing may be left.
void pack(Int8Blocks* packed, const float* values, float* errors, std::size_t count);
/// values[i] becomes what is left of it when it has been packed; `errors` as there.
void pack_in_place(float* values, float* errors, std::size_t count);
/// values[i] = packed[i].
void unpack(float* values, const Int8Blocks* packed, std::size_t count);
/// sum[i] += packed[i].
void add_unpacked(float* sum, const Int8Blocks* packed, std::size_t count);

}  // namespace lockstep::comm
