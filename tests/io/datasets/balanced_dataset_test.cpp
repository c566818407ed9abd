/// Draws in which all classes occur equally often.
#include "io/datasets/balanced_dataset.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/datasets/prefetcher.hpp"
#include "io/datasets/sharded_dataset.hpp"
#include "io/io_test_support.hpp"
#include "io/memory_source.hpp"
#include "io/shards/shard_writer.hpp"

namespace lockstep::io {
namespace {

using testing::Each;
using testing::ElementsAre;

/// 7 of 10 samples are of class 0, 2 of class 1, 1 of class 2.
std::int32_t class_of(std::int64_t sample) {
  constexpr std::array<std::int32_t, 10> kClasses{0, 0, 1, 0, 2, 0, 0, 1, 0, 0};
  return kClasses[static_cast<std::size_t>(sample % 10)];
}

class BalancedDatasetTest : public testing::Test {
 protected:
  static constexpr std::int64_t kSamples = 100;

  std::shared_ptr<Dataset> packed() {
    MemorySource source({.samples = kSamples,
                         .x_type = FileType::float32,
                         .x_shape = {1},
                         .classes = true,
                         .label = [](std::int64_t sample) { return static_cast<double>(class_of(sample)); },
                         .value = [](std::int64_t sample, std::int64_t) { return static_cast<double>(sample); }});
    write_shards(source, {.folder = folder_.path() / "data", .shards = 3}, {});
    return std::make_shared<ShardedDataset>(DatasetOptions{.path = folder_.path() / "data"});
  }
  static std::vector<std::int32_t> labels() {
    std::vector<std::int32_t> all;
    for (std::int64_t sample = 0; sample < kSamples; ++sample) all.push_back(class_of(sample));
    return all;
  }
  BalancedDataset balanced(std::uint64_t seed = 1) const { return {data_, labels(), seed}; }

  TemporaryFolder folder_;
  std::shared_ptr<Dataset> data_ = packed();
};

std::vector<std::int64_t> of_classes(const std::vector<std::uint32_t>& draws) {
  std::vector<std::int64_t> counts(3);
  for (const std::uint32_t sample : draws) ++counts[static_cast<std::size_t>(class_of(sample))];
  return counts;
}

TEST_F(BalancedDatasetTest, AnEpochHasEachClassEquallyOften) {
  const BalancedDataset data = balanced();
  EXPECT_EQ(data.info().samples, kSamples);
  EXPECT_THAT(data.shard_counts(), ElementsAre(kSamples));
  std::vector<std::int64_t> all(3);
  for (std::int64_t epoch = 0; epoch < 6; ++epoch) {
    const std::vector<std::uint32_t> draws = data.draws(epoch);
    EXPECT_EQ(draws.size(), kSamples);
    EXPECT_TRUE(std::ranges::is_sorted(draws));
    const std::vector<std::int64_t> counts = of_classes(draws);
    EXPECT_THAT(counts, Each(testing::AnyOf(33, 34)));
    for (std::size_t i = 0; i < 3; ++i) all[i] += counts[i];
  }
  EXPECT_THAT(all, Each(200)) << "what does not divide goes round";
}

TEST_F(BalancedDatasetTest, TheSamplesOfAClassComeInTurns) {
  const BalancedDataset data = balanced();
  std::map<std::uint32_t, int> times;
  for (std::int64_t epoch = 0; epoch < 9; ++epoch) {
    for (const std::uint32_t sample : data.draws(epoch)) ++times[sample];
    std::vector<int> least(3, 1'000'000), most(3, 0);
    for (std::uint32_t sample = 0; sample < kSamples; ++sample) {
      const auto number = static_cast<std::size_t>(class_of(sample));
      least[number] = std::min(least[number], times[sample]);
      most[number] = std::max(most[number], times[sample]);
    }
    for (std::size_t i = 0; i < 3; ++i) EXPECT_LE(most[i] - least[i], 1) << "class " << i << ", epoch " << epoch;
  }
}

TEST_F(BalancedDatasetTest, DependsOnSeedAndEpochAlone) {
  const std::vector<std::uint32_t> draws = balanced().draws(3);
  EXPECT_EQ(balanced().draws(3), draws);
  EXPECT_NE(balanced().draws(4), draws);
  EXPECT_NE(balanced(2).draws(3), draws);
}

TEST_F(BalancedDatasetTest, DeliversWhatIsDrawnAndInNoEpochWhatThereIs) {
  const BalancedDataset data = balanced();
  std::vector<std::int64_t> all(kSamples);
  std::iota(all.begin(), all.end(), 0);
  std::vector<float> x(kSamples);
  std::vector<std::int32_t> y(kSamples);
  const auto read = [&](std::int64_t epoch) {
    data.read(all, epoch, std::as_writable_bytes(std::span(x)), std::as_writable_bytes(std::span(y)));
  };
  for (const std::int64_t epoch : {1, 0}) {  // and back
    read(epoch);
    EXPECT_TRUE(
        std::ranges::equal(x, data.draws(epoch), {}, {}, [](auto sample) { return static_cast<float>(sample); }));
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], class_of(static_cast<std::int64_t>(x[i])));
  }
  read(kNoEpoch);
  EXPECT_EQ(x.back(), kSamples - 1);
  EXPECT_TRUE(std::ranges::is_sorted(x));
  EXPECT_EQ(y, labels());
  const std::vector<std::int64_t> behind{kSamples};
  EXPECT_THROW(data.read(behind, 0, std::as_writable_bytes(std::span(x).first(1)),
                         std::as_writable_bytes(std::span(y).first(1))),
               std::invalid_argument);
}

/// The samples of each step, sorted, from step `from` on.
std::vector<std::vector<float>> steps(const Dataset& data, int world, std::int64_t count, std::int64_t from = 0) {
  std::vector<std::vector<float>> result(static_cast<std::size_t>(count));
  for (int rank = 0; rank < world; ++rank) {
    Prefetcher prefetcher(data, {.order = {.seed = 5},
                                 .global_batch = 16,
                                 .rank = rank,
                                 .world = world,
                                 .first_epoch = from / 7,
                                 .first_position = from % 7 * 16});
    for (std::vector<float>& step : result) {
      const InputBatch& batch = prefetcher.next();
      const auto* const values = reinterpret_cast<const float*>(batch.x.data());
      step.insert(step.end(), values, values + batch.count);
    }
  }
  for (std::vector<float>& step : result) std::ranges::sort(step);
  return result;
}

TEST_F(BalancedDatasetTest, StepsAreTheSameAtAnyNumberOfRanksAndFromAnyOneOn) {
  const BalancedDataset data = balanced();
  const auto alone = steps(data, 1, 21);
  EXPECT_EQ(steps(data, 2, 21), alone);
  EXPECT_EQ(steps(data, 3, 21), alone);
  for (const std::int64_t from : {1, 6, 7, 13}) {
    const auto rest = steps(data, 2, 21 - from, from);
    EXPECT_TRUE(std::ranges::equal(rest, std::span(alone).subspan(static_cast<std::size_t>(from)))) << from;
  }
  std::vector<std::uint32_t> second;
  for (std::size_t step = 7; step < 14; ++step) second.insert(second.end(), alone[step].begin(), alone[step].end());
  std::ranges::sort(second);
  EXPECT_EQ(second, data.draws(1)) << "an epoch is its draws";
}

TEST_F(BalancedDatasetTest, RefusesWhatCannotBeDrawn) {
  std::vector<std::int32_t> wrong = labels();
  std::ranges::replace(wrong, 2, 1);
  EXPECT_THROW(BalancedDataset(data_, wrong, 1), std::invalid_argument) << "nothing of class 2";
  wrong[0] = 3;
  EXPECT_THROW(BalancedDataset(data_, wrong, 1), std::invalid_argument);
  wrong.pop_back();
  EXPECT_THROW(BalancedDataset(data_, wrong, 1), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::io
