#include "io/datasets/sample_order.hpp"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace lockstep::io {
namespace {

std::vector<std::int64_t> whole(const SampleOrder& order) {
  std::vector<std::int64_t> result;
  for (std::int64_t p = 0; p < order.samples(); ++p) result.push_back(order.at(p));
  return result;
}

bool is_permutation_of_samples(std::vector<std::int64_t> order) {
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i] != static_cast<std::int64_t>(i)) return false;
  }
  return true;
}

TEST(SampleOrder, AnyConfigurationIsAPermutationThatAnyWorldShares) {
  std::mt19937_64 random(7);
  const auto below = [&](std::int64_t limit) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
  };
  for (int configuration = 0; configuration < 300; ++configuration) {
    SampleOrderOptions options;
    options.seed = random();
    const std::int64_t shards = 1 + below(6);
    for (std::int64_t s = 0; s < shards; ++s) options.shard_counts.push_back(below(configuration % 3 == 0 ? 40 : 900));
    options.sample_bytes = static_cast<std::size_t>(1 + below(1 << (1 + below(18))));
    options.block_multiple = 1 + (configuration % 4 == 0 ? below(30) : 0);
    const SampleOrder order(options, below(5));
    const std::vector<std::int64_t> expected = whole(order);
    ASSERT_TRUE(is_permutation_of_samples(expected)) << "configuration " << configuration;

    const std::int64_t batch = 1 + below(300);
    const int world = static_cast<int>(1 + below(9));
    for (std::int64_t first = 0; first < order.samples(); first += batch) {
      const std::int64_t count = std::min(batch, order.samples() - first);
      std::multiset<std::int64_t> seen;
      std::size_t least = 1U << 30;
      std::size_t most = 0;
      for (int rank = 0; rank < world; ++rank) {
        const auto part = order.part(first, count, rank, world);
        seen.insert(part.begin(), part.end());
        least = std::min(least, part.size());
        most = std::max(most, part.size());
      }
      ASSERT_LE(most - least, 1U);
      ASSERT_EQ(seen, std::multiset<std::int64_t>(expected.begin() + first, expected.begin() + first + count))
          << "configuration " << configuration << " step at " << first;
    }
  }
}

TEST(SampleOrder, DependsOnSeedAndEpochAlone) {
  const SampleOrderOptions options{.seed = 3, .shard_counts = {500, 400, 600}, .sample_bytes = 20'000};
  const auto order = whole(SampleOrder(options, 2));
  EXPECT_EQ(order, whole(SampleOrder(options, 2)));
  EXPECT_NE(order, whole(SampleOrder(options, 3)));
  SampleOrderOptions other = options;
  other.seed = 4;
  EXPECT_NE(order, whole(SampleOrder(other, 2)));
}

TEST(SampleOrder, WithoutShufflingIsFileOrder) {
  const SampleOrder order({.shuffle = false, .shard_counts = {10, 0, 7}, .sample_bytes = 100}, 1);
  std::vector<std::int64_t> joined;
  for (int rank = 0; rank < 3; ++rank) {
    for (const std::int64_t sample : order.part(2, 14, rank, 3)) joined.push_back(sample);
  }
  std::vector<std::int64_t> expected(14);
  std::iota(expected.begin(), expected.end(), 2);
  EXPECT_EQ(joined, expected);
  EXPECT_EQ(order.at(16), 16);
}

/// Variance of the number of samples of each class in a batch, relative to independent draws. In data sorted by class,
/// file order gives about the batch size.
double mixing(const SampleOrder& order, std::int64_t classes, std::int64_t batch) {
  const std::int64_t samples = order.samples();
  double squares = 0;
  std::int64_t batches = 0;
  for (std::int64_t first = 0; first + batch <= samples; first += batch, ++batches) {
    std::vector<double> counts(static_cast<std::size_t>(classes));
    for (std::int64_t p = first; p < first + batch; ++p)
      counts[static_cast<std::size_t>(order.at(p) * classes / samples)] += 1;
    const double expected = static_cast<double>(batch) / static_cast<double>(classes);
    for (const double count : counts) squares += (count - expected) * (count - expected);
  }
  const double share = 1.0 / static_cast<double>(classes);
  return squares / static_cast<double>(batches * classes) / (static_cast<double>(batch) * share * (1 - share));
}

TEST(SampleOrder, MixesDataSortedByClass) {
  SampleOrderOptions options{.seed = 1, .shard_counts = {15'000, 15'000, 15'000, 15'000}, .sample_bytes = 785};
  EXPECT_LT(mixing(SampleOrder(options, 0), 10, 128), 1.6);
  options.sample_bytes = 3'000;  // many more blocks than the 1,024 that are drawn from at once
  options.shard_counts = {200'000, 200'000};
  EXPECT_LT(mixing(SampleOrder(options, 0), 10, 128), 1.2);
  options.shuffle = false;
  EXPECT_GT(mixing(SampleOrder(options, 0), 10, 128), 50) << "the measure does not measure";
}

TEST(SampleOrder, NeighboursInABatchAreNotNeighboursInTheFile) {
  const SampleOrder order({.seed = 1, .shard_counts = {60'000}, .sample_bytes = 785}, 0);
  std::int64_t adjacent = 0;
  for (std::int64_t p = kPartitions; p < order.samples(); ++p)
    adjacent += order.at(p) == order.at(p - kPartitions) + 1 ? 1 : 0;
  EXPECT_LT(adjacent, 600);  // a random order has one in 937 within each partition
}

TEST(SampleOrder, DrawsFromABoundedWorkingSet) {
  const std::int64_t samples = 400'000;
  const SampleOrder order({.seed = 1, .shard_counts = {samples}, .sample_bytes = 3'000}, 0);
  const std::int64_t block = static_cast<std::int64_t>(kBlockBytes) / 3'000;
  std::set<std::int64_t> blocks;
  for (std::int64_t p = samples / 2; p < samples / 2 + 10'000; ++p) blocks.insert(order.at(p) / block);
  EXPECT_LT(blocks.size(), static_cast<std::size_t>(2.5 * kPartitions * (kWindowBlocks + 1)));
}

TEST(SampleOrder, AnnouncesEveryBlockBeforeItIsUsed) {
  const std::int64_t samples = 50'000;
  const SampleOrder order({.seed = 5, .shard_counts = {20'000, samples - 20'000}, .sample_bytes = 20'000}, 0);
  for (const int world : {1, 3}) {
    for (int rank = 0; rank < world; ++rank) {
      std::vector<bool> announced(samples);
      std::int64_t surprises = 0;
      std::int64_t seen = 0;
      const std::int64_t batch = 192;  // a multiple of the partitions: each rank keeps its own
      for (std::int64_t first = batch * 20; first + batch <= samples; first += batch) {
        for (const Slice& range : order.upcoming(first, batch, rank, world, first == batch * 20)) {
          for (std::int64_t i = range.first; i < range.first + range.count; ++i)
            announced[static_cast<std::size_t>(i)] = true;
        }
        for (const std::int64_t sample : order.part(first, batch, rank, world)) {
          surprises += announced[static_cast<std::size_t>(sample)] ? 0 : 1;
          ++seen;
        }
      }
      EXPECT_EQ(surprises, 0) << "rank " << rank << " of " << world;
      EXPECT_GT(seen, 10'000);
    }
  }
}

TEST(SampleOrder, RefusesNonsense) {
  const SampleOrder order({.shard_counts = {10}, .sample_bytes = 1}, 0);
  EXPECT_THROW(order.at(-1), std::invalid_argument);
  EXPECT_THROW(order.at(10), std::invalid_argument);
  EXPECT_THROW(order.part(5, 6, 0, 1), std::invalid_argument);
  EXPECT_THROW(order.part(0, 1, 1, 1), std::invalid_argument);
  EXPECT_THROW(SampleOrder({.shard_counts = {-1}}, 0), std::invalid_argument);
  EXPECT_THROW(SampleOrder({.shard_counts = {1}, .sample_bytes = 0}, 0), std::invalid_argument);
  EXPECT_EQ(SampleOrder({.shard_counts = {}}, 0).samples(), 0);
}

}  // namespace
}  // namespace lockstep::io
