/// \file
/// Arrays of which a message holds only a part: blocks of 64 values, with their places. The gradient of a word
/// embedding is zero but for the rows of the words in a batch, and plain SGD leaves the other rows as they are.
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

/// When each block of an array has changed: by versions of the array, which grow.
class ChangedBlocks {
 public:
  /// The array is `now`, in this version; what was before is not known. Takes as much memory as the array.
  void begin(std::span<const float> now, std::int64_t version);
  bool has_begun() const noexcept { return !last_.empty(); }
  /// It has become this one.
  void see(std::span<const float> now, std::int64_t version);
  /// Those that have changed after `version`. False: that is not known.
  bool since(std::int64_t version, std::vector<std::uint32_t>& blocks) const;

 private:
  std::vector<float> last_;
  std::vector<std::int64_t> versions_;  ///< version of the last change of each block
  std::int64_t begun_ = 0;
};

}  // namespace lockstep::comm
