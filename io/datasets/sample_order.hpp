/// \file
/// The order of training samples: a pure function (seed, epoch, position) -> sample, independent of the world size.
///
/// What it wants: mixing as good as a true shuffle, reads that stay near each other on disk, any position reachable by
/// arithmetic (resume), no array of N numbers. How:
///
///  1. Blocks. Each shard is cut into blocks of about kBlockBytes, or fewer where that leaves less than kPartitions x
///     kWindowBlocks of them (all of them would be drawn from at once: small ones mix better at the same cost). The
///     blocks of all shards are permuted, keyed by (seed, epoch). One after another they make a sequence Q of all N
///     samples.
///  2. Partitions. Q is cut into kPartitions nearly equal pieces. Position p belongs to partition p mod kPartitions and
///     is that partition's sample number p div kPartitions; so partition v has as many samples as there are such p.
///  3. Windows. A partition is cut into windows of kWindowBlocks blocks' samples, each permuted, keyed by (seed, epoch,
///     partition, window). First windows have staggered lengths, so that partitions move to new blocks at different
///     times. At any moment samples are drawn from kPartitions x kWindowBlocks blocks (256 MiB); where chunking forces
///     larger blocks, windows have fewer of them.
///
/// A step takes the next G positions. Its ranks sort them by partition and take equal runs: a rank stays with few
/// partitions, and so with few blocks.
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
  std::size_t sample_bytes = 1;                 ///< x and y together
  std::int64_t block_multiple = 1;              ///< a block is a multiple of this many samples (chunk[0])
};

/// Samples [first, first + count): a block that lies together on disk.
struct Slice {
  std::int64_t first = 0, count = 0;
};

/// The order of one epoch. Building permutes the blocks (4 bytes of memory each); everything else is computed when
/// asked for. Const calls may come from several threads.
class SampleOrder {
 public:
  SampleOrder(SampleOrderOptions options, std::int64_t epoch);
  ~SampleOrder();
  SampleOrder(SampleOrder&&) noexcept;
  SampleOrder& operator=(SampleOrder&&) noexcept;

  std::int64_t samples() const noexcept;
  std::int64_t epoch() const noexcept;
  /// Every sample exactly once over positions [0, samples()). Tens of nanoseconds.
  std::int64_t at(std::int64_t position) const;
  /// This rank's part of the step that covers positions [first, first + count): parts differ by at most one sample,
  /// their union over the ranks is the step, at any world size.
  std::vector<std::int64_t> part(std::int64_t first, std::int64_t count, int rank, int world) const;
  /// The same into a vector that is reused.
  void part(std::int64_t first, std::int64_t count, int rank, int world, std::vector<std::int64_t>& out) const;
  /// The blocks that this rank's part of a step begins to draw from, one window ahead of their use (begin_of_reading:
  /// also those of the current windows): to be read ahead. Empty in file order, where the kernel sees the
  /// pattern by itself.
  std::vector<Slice> upcoming(std::int64_t first, std::int64_t count, int rank, int world, bool begin_of_reading) const;

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

}  // namespace lockstep::io
