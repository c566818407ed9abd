/// \file
/// The order of training samples: a pure function (seed, epoch, position) -> sample, independent of the world size.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::io {

struct SampleOrderOptions {
  std::uint64_t seed = 1;
  bool shuffle = true;                       ///< false: file order
  std::vector<std::int64_t> shard_counts;    ///< samples per shard: blocks never cross shards
  std::size_t sample_bytes = 1;              ///< x and y together; a block is about 256 KiB
  std::int64_t block_multiple = 1;           ///< a block is a multiple of this many samples (chunk[0])
};

/// The order of one epoch. Cheap to build (blocks are permuted, windows lazily).
class SampleOrder {
 public:
  SampleOrder(SampleOrderOptions options, std::int64_t epoch);
  ~SampleOrder();
  SampleOrder(SampleOrder&&) noexcept;
  SampleOrder& operator=(SampleOrder&&) noexcept;

  std::int64_t samples() const noexcept;
  std::int64_t epoch() const noexcept;
  /// Every sample exactly once over positions [0, samples()).
  std::int64_t at(std::int64_t position) const;
  /// This rank's part of the step that covers positions [first, first + count): parts differ by at most one sample,
  /// their union over the ranks is the step, at any world size.
  std::vector<std::int64_t> part(std::int64_t first, std::int64_t count, int rank, int world) const;

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

}  // namespace lockstep::io
