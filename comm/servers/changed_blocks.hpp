/// \file
/// Packs and unpacks the changed parts of an array, in blocks of 64 values, so that a message can leave out the rest.
/// The gradient of a word embedding is zero except in the rows of the batch's words, and plain SGD does not change the
/// other rows.
///
/// Packed format: the number of blocks, their indices (each a uint32_t in the bits of a float), then their values. The
/// last block of an array may be shorter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::comm {

/// Values per block. Each parameter begins at a multiple of it.
inline constexpr std::size_t kBlockElements = 64;

/// Finds the indices of the blocks with any nonzero bit; -0.0f counts as nonzero.
void find_blocks_not_zero(std::span<const float> values, std::vector<std::uint32_t>& blocks);
/// Packs the given blocks of `values`. Returns false, with `packed` unchanged, if the result would not be shorter than
/// `values`.
bool pack_blocks(std::span<const float> values, std::span<const std::uint32_t> blocks, std::vector<float>& packed);
/// Copies the packed blocks to their places in `values` and leaves the other blocks unchanged. Returns false if
/// `packed` does not match the size of `values`; some blocks may have been copied then.
bool unpack_blocks(std::span<const float> packed, std::span<float> values);

/// Records for each block of an array the version in which it last changed. Versions grow.
class ChangedBlocks {
 public:
  /// Starts with the contents `now` of the array in this version; earlier changes are unknown. Keeps a copy of the
  /// array.
  void begin(std::span<const float> now, std::int64_t version);
  bool has_begun() const noexcept { return !last_.empty(); }
  /// Compares the array with the copy, and records the blocks that differ as changed in `version`.
  void update(std::span<const float> now, std::int64_t version);
  /// Finds the blocks that changed after `version`. Returns false if that is unknown.
  bool since(std::int64_t version, std::vector<std::uint32_t>& blocks) const;

 private:
  std::vector<float> last_;
  std::vector<std::int64_t> versions_;  ///< version in which each block last changed
  std::int64_t begun_ = 0;
};

}  // namespace lockstep::comm
