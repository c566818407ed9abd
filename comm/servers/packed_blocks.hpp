/// \file
/// Arrays of which a message holds only a part: blocks of 64 values, with their places. The gradient of a word
/// embedding is zero but for the rows of the words in a batch.
///
/// PACKED are: the number of blocks, their indices (unsigned integers, in the bits of the floats), their values; the
/// last block of an array may be shorter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::comm {

/// Elements. Parameters begin at multiples of it.
inline constexpr std::size_t kBlockElements = 64;

/// Finds the numbers of the blocks that hold anything but zeros (a zero of the other sign is something).
void find_blocks_not_zero(std::span<const float> values, std::vector<std::uint32_t>& blocks);
/// False, and nothing, where that would be no shorter than the values themselves.
bool pack_blocks(std::span<const float> values, std::span<const std::uint32_t> blocks, std::vector<float>& packed);
/// The blocks in their places; all else stays. False, and perhaps some of them, where these are no blocks of `values`.
bool unpack_blocks(std::span<const float> packed, std::span<float> values);

}  // namespace lockstep::comm
