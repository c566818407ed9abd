/// \file
/// The order of training samples: a pure function (seed, epoch, position) -> sample, independent of the world size.
///
/// Goals: mixing as good as a true shuffle, neighbouring reads close together on disk, any position reachable by
/// arithmetic (resume), no array of N numbers. Method:
///
///  1. Blocks. Each shard is cut into blocks of about kBlockBytes. If there would be fewer than kPartitions x
///     kWindowBlocks of them, the blocks are smaller: samples come from all of them at once, and small blocks mix
///     better at the same cost. The blocks of all shards are permuted, keyed by (seed, epoch). Joined, they form a
///     sequence Q of all N samples.
///  2. Partitions. Q is cut into kPartitions nearly equal pieces. Position p belongs to partition p mod kPartitions and
///     is that partition's sample number p div kPartitions; so partition v has as many samples as there are such p.
///  3. Windows. A partition is cut into windows of kWindowBlocks blocks' samples, each permuted, keyed by (seed, epoch,
///     partition, window). First windows have staggered lengths, so that partitions move to new blocks at different
///     times. At any moment samples come from kPartitions x kWindowBlocks blocks (256 MiB); if chunking forces larger
///     blocks, windows have fewer of them.
///
/// A step takes the next G positions. Its ranks sort them by partition and take equal runs: a rank uses few partitions,
/// and therefore few blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep::io {

inline constexpr std::size_t kBlockBytes = std::size_t{256} << 10;
inline constexpr std::int64_t kPartitions = 64;
inline constexpr std::int64_t kWindowBlocks = 16;

struct SampleOrderOptions {
  std::uint64_t seed = 1;
  bool shuffle = true;                          ///< false: file order
  std::vector<std::int64_t> shard_counts = {};  ///< samples per shard: blocks never cross shards
  std::size_t sample_bytes = 1;                 ///< bytes of x and y together
  std::int64_t block_multiple = 1;              ///< a block is a multiple of this many samples (chunk[0])
};

/// Samples [first, first + count): a block that is contiguous on disk.
struct Slice {
  std::int64_t first = 0, count = 0;
};

/// The order of one epoch. Construction permutes the blocks (4 bytes of memory each); everything else is computed on
/// request. Const calls may come from several threads.
class SampleOrder {
 public:
  SampleOrder(SampleOrderOptions options, std::int64_t epoch);
  ~SampleOrder();
  SampleOrder(SampleOrder&&) noexcept;
  SampleOrder& operator=(SampleOrder&&) noexcept;

  std::int64_t samples() const noexcept;
  std::int64_t epoch() const noexcept;
  /// The sample at a position; every sample occurs once in [0, samples()). Tens of nanoseconds.
  std::int64_t at(std::int64_t position) const;
  /// This rank's part of the step that covers positions [first, first + count). Parts differ by at most one sample, and
  /// their union over the ranks is the step, at any world size.
  std::vector<std::int64_t> part(std::int64_t first, std::int64_t count, int rank, int world) const;
  /// As above, into a reused vector.
  void part(std::int64_t first, std::int64_t count, int rank, int world, std::vector<std::int64_t>& out) const;
  /// The blocks that this rank's part of a step starts to use, one window early (begin_of_reading: also the blocks of
  /// the current windows), so that they can be read ahead. Empty in file order, which the kernel recognises.
  std::vector<Slice> upcoming(std::int64_t first, std::int64_t count, int rank, int world, bool begin_of_reading) const;

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

}  // namespace lockstep::io
