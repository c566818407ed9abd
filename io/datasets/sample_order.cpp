#include "io/datasets/sample_order.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>

#include <fmt/format.h>

#include "io/shards/counter_random.hpp"
#include "io/shards/permutation.hpp"

namespace lockstep::io {
namespace {

/// Bytes in use at once, over all partitions; bounds a block cache and the page cache's share.
constexpr std::int64_t kWorkingSetBytes = kPartitions * kWindowBlocks * static_cast<std::int64_t>(kBlockBytes);

}  // namespace

struct SampleOrder::Plan {
  SampleOrderOptions options;
  std::int64_t epoch = 0;
  std::int64_t samples = 0;
  std::int64_t block = 1;                       ///< samples per block
  std::int64_t window = 1;                      ///< samples per window
  std::vector<std::int64_t> shard_first;        ///< first sample of each shard
  std::vector<std::int64_t> shard_first_block;  ///< number of each shard's first block
  std::vector<std::uint32_t> blocks;            ///< slot of Q -> block
  // The last block of a shard may be short. For the k-th short block: its end in Q, and the samples missing up to
  // there. With them, a division turns Q's positions into slots.
  std::vector<std::int64_t> short_end;
  std::vector<std::int64_t> missing{0};

  /// A partition's window: partition indices [start, start + size).
  struct Window {
    std::int64_t start = 0, size = 0;
    Permutation permutation;
    bool holds(std::int64_t index) const noexcept { return index >= start && index < start + size; }
  };

  void lay_out_blocks() {
    const auto sample_bytes = static_cast<std::int64_t>(options.sample_bytes);
    const std::int64_t multiple = options.block_multiple;
    const std::int64_t all = std::accumulate(options.shard_counts.begin(), options.shard_counts.end(), std::int64_t{0});
    const std::int64_t wanted = std::max<std::int64_t>(
        1, std::min(static_cast<std::int64_t>(kBlockBytes) / sample_bytes, all / (kPartitions * kWindowBlocks)));
    block = (wanted + multiple - 1) / multiple * multiple;
    window =
        block * std::clamp<std::int64_t>(kWorkingSetBytes / kPartitions / (block * sample_bytes), 1, kWindowBlocks);
    std::int64_t count = 0;
    for (const std::int64_t shard : options.shard_counts) {
      shard_first.push_back(samples);
      shard_first_block.push_back(count);
      samples += shard;
      count += (shard + block - 1) / block;
    }
    if (count > std::numeric_limits<std::uint32_t>::max())
      throw std::invalid_argument("more than 2^32 blocks of samples");
    blocks.resize(static_cast<std::size_t>(count));
    std::iota(blocks.begin(), blocks.end(), 0U);
  }

  void permute_blocks() {
    for (std::size_t last = blocks.size(); last-- > 1;) {  // Fisher, Yates
      const RandomBlock words = random_block(options.seed, RandomPurpose::block_order,
                                             static_cast<std::uint64_t>(epoch), static_cast<std::uint32_t>(last));
      const std::uint64_t chosen = (std::uint64_t{words[0]} * (last + 1)) >> 32;
      std::swap(blocks[last], blocks[chosen]);
    }
    for (std::size_t slot = 0; slot < blocks.size(); ++slot) {
      const std::int64_t length = block_range(slot).count;
      if (length == block) continue;
      short_end.push_back(static_cast<std::int64_t>(slot) * block - missing.back() + length);
      missing.push_back(missing.back() + block - length);
    }
  }

  Slice block_range(std::size_t slot) const {
    const std::int64_t number = blocks[slot];
    const auto shard = static_cast<std::size_t>(
        std::upper_bound(shard_first_block.begin(), shard_first_block.end(), number) - shard_first_block.begin() - 1);
    const std::int64_t within = (number - shard_first_block[shard]) * block;
    return {shard_first[shard] + within, std::min(block, options.shard_counts[shard] - within)};
  }

  struct Place {
    std::size_t slot = 0;
    std::int64_t offset = 0;
  };
  Place place_in_q(std::int64_t q) const {
    const auto before = std::upper_bound(short_end.begin(), short_end.end(), q) - short_end.begin();
    const std::int64_t padded = q + missing[static_cast<std::size_t>(before)];
    return {static_cast<std::size_t>(padded / block), padded % block};
  }

  std::int64_t partition_start(std::int64_t partition) const noexcept {
    return partition * (samples / kPartitions) + std::min(partition, samples % kPartitions);
  }
  std::int64_t partition_size(std::int64_t partition) const noexcept {
    return partition_start(partition + 1) - partition_start(partition);
  }

  /// The window that holds `index`; `number` receives the window's number in its partition.
  Window window_at(std::int64_t partition, std::int64_t index, std::int64_t& number) const {
    const std::int64_t first_size = std::max<std::int64_t>(1, window * (partition + 1) / kPartitions);
    Window result;
    if (index < first_size) {
      number = 0;
      result.size = first_size;
    } else {
      number = 1 + (index - first_size) / window;
      result.start = first_size + (number - 1) * window;
      result.size = window;
    }
    result.size = std::min(result.size, partition_size(partition) - result.start);
    const RandomBlock keys =
        philox(options.seed,
               {static_cast<std::uint32_t>(number),
                static_cast<std::uint32_t>(number >> 32) ^ static_cast<std::uint32_t>(epoch >> 32),
                static_cast<std::uint32_t>(epoch),
                static_cast<std::uint32_t>(RandomPurpose::window_order) << 16 | static_cast<std::uint32_t>(partition)});
    result.permutation = Permutation(static_cast<std::uint64_t>(result.size), keys);
    return result;
  }

  std::int64_t sample_at(std::int64_t partition, std::int64_t index, const Window& in) const {
    const auto moved = static_cast<std::int64_t>(in.permutation(static_cast<std::uint64_t>(index - in.start)));
    const Place place = place_in_q(partition_start(partition) + in.start + moved);
    return block_range(place.slot).first + place.offset;
  }

  /// Number of this partition's positions below `position`.
  static std::int64_t indices_before(std::int64_t partition, std::int64_t position) noexcept {
    return (position + kPartitions - 1 - partition) / kPartitions;
  }

  /// Calls `work(partition, begin, end)`, partition by partition, with the partition indices that a rank takes from a
  /// step.
  template <class Work>
  void for_partitions(std::int64_t first, std::int64_t count, int rank, int world, const Work& work) const {
    const std::int64_t low = count * rank / world;
    const std::int64_t high = count * (rank + 1) / world;
    std::int64_t done = 0;  // positions of the step in earlier partitions
    for (std::int64_t partition = 0; partition < kPartitions && done < high; ++partition) {
      const std::int64_t begin = indices_before(partition, first);
      const std::int64_t end = indices_before(partition, first + count);
      const std::int64_t from = std::max(begin, begin + low - done);
      const std::int64_t to = std::min(end, begin + high - done);
      if (from < to) work(partition, from, to);
      done += end - begin;
    }
  }

  void check_step(std::int64_t first, std::int64_t count, int rank, int world) const {
    if (first < 0 || count < 0 || count > samples - first || world < 1 || rank < 0 || rank >= world) {
      throw std::invalid_argument(fmt::format("no part {} of {} of positions [{}, {} + {}) in an epoch of {}", rank,
                                              world, first, first, count, samples));
    }
  }

  /// Adds the blocks of the window that begins at or holds `index`.
  void add_blocks(std::int64_t partition, std::int64_t index, std::vector<Slice>& out) const {
    if (index >= partition_size(partition)) return;
    std::int64_t number = 0;
    const Window in = window_at(partition, index, number);
    const std::size_t from = place_in_q(partition_start(partition) + in.start).slot;
    const std::size_t to = place_in_q(partition_start(partition) + in.start + in.size - 1).slot;
    for (std::size_t slot = from; slot <= to; ++slot) out.push_back(block_range(slot));
  }
};

SampleOrder::SampleOrder(SampleOrderOptions options, std::int64_t epoch) : plan_(std::make_unique<Plan>()) {
  if (options.sample_bytes < 1 || options.block_multiple < 1 || epoch < 0 ||
      std::any_of(options.shard_counts.begin(), options.shard_counts.end(), [](std::int64_t n) { return n < 0; })) {
    throw std::invalid_argument(
        "a sample order needs samples of at least a byte, a block multiple of at least 1, and no "
        "negative counts");
  }
  plan_->options = std::move(options);
  plan_->epoch = epoch;
  plan_->lay_out_blocks();
  if (plan_->options.shuffle) plan_->permute_blocks();
}

SampleOrder::~SampleOrder() = default;
SampleOrder::SampleOrder(SampleOrder&&) noexcept = default;
SampleOrder& SampleOrder::operator=(SampleOrder&&) noexcept = default;

std::int64_t SampleOrder::samples() const noexcept { return plan_->samples; }
std::int64_t SampleOrder::epoch() const noexcept { return plan_->epoch; }

std::int64_t SampleOrder::at(std::int64_t position) const {
  plan_->check_step(position, 1, 0, 1);
  if (!plan_->options.shuffle) return position;
  std::int64_t number = 0;
  const Plan::Window window = plan_->window_at(position % kPartitions, position / kPartitions, number);
  return plan_->sample_at(position % kPartitions, position / kPartitions, window);
}

std::vector<std::int64_t> SampleOrder::part(std::int64_t first, std::int64_t count, int rank, int world) const {
  std::vector<std::int64_t> result;
  part(first, count, rank, world, result);
  return result;
}

void SampleOrder::part(std::int64_t first, std::int64_t count, int rank, int world,
                       std::vector<std::int64_t>& out) const {
  plan_->check_step(first, count, rank, world);
  out.clear();
  if (!plan_->options.shuffle) {
    for (std::int64_t p = count * rank / world; p < count * (rank + 1) / world; ++p) out.push_back(first + p);
    return;
  }
  plan_->for_partitions(first, count, rank, world, [&](std::int64_t partition, std::int64_t begin, std::int64_t end) {
    std::int64_t number = 0;
    Plan::Window window;
    for (std::int64_t index = begin; index < end; ++index) {
      if (!window.holds(index)) window = plan_->window_at(partition, index, number);
      out.push_back(plan_->sample_at(partition, index, window));
    }
  });
}

std::vector<Slice> SampleOrder::upcoming(std::int64_t first, std::int64_t count, int rank, int world,
                                         bool begin_of_reading) const {
  plan_->check_step(first, count, rank, world);
  std::vector<Slice> result;
  if (!plan_->options.shuffle) return result;
  plan_->for_partitions(first, count, rank, world, [&](std::int64_t partition, std::int64_t, std::int64_t) {
    // Covers the partition's whole share of the step, even if another rank takes some of it: the window may begin
    // there.
    const std::int64_t begin = Plan::indices_before(partition, first);
    const std::int64_t end = Plan::indices_before(partition, first + count);
    std::int64_t number = 0;
    for (std::int64_t index = begin; index < end;) {
      const Plan::Window window = plan_->window_at(partition, index, number);
      if (index == begin && begin_of_reading) plan_->add_blocks(partition, index, result);
      if (index == window.start || (index == begin && begin_of_reading)) {
        plan_->add_blocks(partition, window.start + window.size, result);
      }
      index = window.start + window.size;
    }
  });
  return result;
}

}  // namespace lockstep::io
