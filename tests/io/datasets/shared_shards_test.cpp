#include "io/datasets/shared_shards.hpp"

#include <array>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/datasets/shard_set.hpp"
#include "io/datasets/sharded_dataset.hpp"
#include "io/datasets/token_dataset.hpp"
#include "io/io_test_support.hpp"
#include "io/memory_corpus.hpp"
#include "io/memory_source.hpp"
#include "io/shards/shard_writer.hpp"

namespace lockstep::io {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class SharedShardsTest : public testing::Test {
 protected:
  static constexpr int kRanks = 3;
  std::filesystem::path set() const { return folder_.path() / "set"; }
  std::filesystem::path shard(int index) const { return set() / ("shard-0000" + std::to_string(index) + ".h5"); }
  void pack(const MemorySource::Options& samples, std::int64_t shards = 7) const {
    MemorySource source(samples);
    write_shards(source, {.folder = set(), .shards = shards, .overwrite = true}, {});
  }
  std::shared_ptr<SharedShards> part_of(int rank) const {
    return std::make_shared<SharedShards>(set(), rank, kRanks, nullptr);
  }
  /// The shards of each rank.
  std::array<std::shared_ptr<SharedShards>, kRanks> together() const {
    std::array<std::shared_ptr<SharedShards>, kRanks> ranks;
    std::vector<std::string> findings;
    for (int rank = 0; rank < kRanks; ++rank) {
      findings.push_back((ranks.at(static_cast<std::size_t>(rank)) = part_of(rank))->findings());
    }
    for (const auto& shared : ranks) shared->complete(findings);
    return ranks;
  }
  static std::vector<std::byte> all_of(const Dataset& data) {
    const auto samples = static_cast<std::size_t>(data.info().samples);
    std::vector<std::int64_t> numbers(samples);
    for (std::size_t i = 0; i < samples; ++i) numbers[i] = static_cast<std::int64_t>(i);
    std::vector<std::byte> x(samples * data.x_bytes()), y(samples * data.y_bytes());
    data.read(numbers, kNoEpoch, x, y);
    x.insert(x.end(), y.begin(), y.end());
    return x;
  }
  TemporaryFolder folder_;
};

TEST_F(SharedShardsTest, HaveTheSamplesAndTheFingerprintOfThoseThatOneOpens) {
  pack({.samples = 103, .class_names = {"a", "b", "c", "d", "e"}});
  const ShardedDataset alone({.path = set()});
  for (const auto& shared : together()) {
    ShardedDataset data({.path = set(), .shared = shared});
    EXPECT_EQ(data.fingerprint(), alone.fingerprint());
    EXPECT_EQ(data.info().class_names, alone.info().class_names);
    EXPECT_EQ(data.shard_counts(), alone.shard_counts());
    EXPECT_EQ(data.block_multiple(), alone.block_multiple());
    EXPECT_TRUE(all_of(data) == all_of(alone));
    EXPECT_EQ(data.verify(1, 2), alone.verify(1, 2));
    EXPECT_NO_THROW(data.check_unchanged(0, 1));
  }
}

TEST_F(SharedShardsTest, HaveTheWindowsOfACorpusThatOneOpens) {
  MemoryCorpus source({.tokens = 1000, .vocabulary = 300});
  write_shards(source, {.folder = set(), .shards = 7}, {});
  const TokenDataset alone({.path = set(), .context = 9});
  for (const auto& shared : together()) {
    TokenDataset data({.path = set(), .context = 9, .shared = shared});
    EXPECT_EQ(data.fingerprint(), alone.fingerprint());
    EXPECT_EQ(data.shard_counts(), alone.shard_counts());
    EXPECT_TRUE(all_of(data) == all_of(alone));
    EXPECT_EQ(data.verify(0, 1), alone.verify(0, 1));
    EXPECT_NO_THROW(data.check_unchanged(0, 1));
  }
}

TEST_F(SharedShardsTest, AFaultIsSeenByTheRankWhosePartItIs) {
  pack({.samples = 103});
  std::filesystem::resize_file(shard(4), std::filesystem::file_size(shard(4)) + 1);
  EXPECT_NO_THROW(part_of(0));
  EXPECT_THAT(error_text<FileError>([&] { part_of(1); }),
              AllOf(HasSubstr("shard-00004.h5"), HasSubstr("the manifest says")));
  std::filesystem::remove(shard(4));
  EXPECT_THAT(error_text<FileError>([&] { part_of(1); }), HasSubstr("is missing"));
}

TEST_F(SharedShardsTest, AShardThatIsSwappedLaterIsSeenByWhoOpensItThen) {
  pack({.samples = 105});
  const auto ranks = together();
  ShardedDataset opened({.path = set(), .shared = ranks[1]}), unopened({.path = set(), .shared = ranks[0]});
  std::filesystem::copy_file(shard(0), set() / "other");
  std::filesystem::rename(set() / "other", shard(4));
  EXPECT_THAT(error_text<FileError>([&] { opened.check_unchanged(4, 7); }), HasSubstr("another file has taken"));
  EXPECT_THAT(error_text<FileError>([&] { unopened.check_unchanged(4, 7); }),
              AllOf(HasSubstr("shard-00004.h5"), HasSubstr("belongs to another folder, or was changed")));
  EXPECT_THAT(error_text<FileError>([&] { all_of(unopened); }), HasSubstr("shard-00004.h5"));
  EXPECT_NO_THROW(unopened.will_need(0, 105, kNoEpoch)) << "who reads it says so";
}

TEST_F(SharedShardsTest, WhatIsSlowToReadIsKnownToAll) {
  pack({.samples = 105});
  const std::array<std::string, 2> findings{
      part_of(0)->findings(),
      R"({"block_multiple": 12, "in_blocks": 345, "slow": [{"shard": 4, "field": 0, "why": "shard-00004.h5: slow"}]})"};
  const auto shared = part_of(2);
  shared->complete(findings);
  const ShardedDataset data({.path = set(), .shared = shared});
  EXPECT_EQ(data.block_multiple(), 12);
  EXPECT_EQ(data.cache_bytes(), 345U);
  EXPECT_FALSE(data.shards()[4].by_offset);
  EXPECT_TRUE(data.shards()[3].by_offset);
  EXPECT_THAT(data.warnings(), testing::ElementsAre("shard-00004.h5: slow"));
}

TEST_F(SharedShardsTest, CopiesAreToldApart) {
  pack({.samples = 30});
  const std::string here = SharedShards::identity(set());
  EXPECT_NE(here, "");
  EXPECT_EQ(SharedShards::identity(set()), here);
  std::filesystem::copy(set(), folder_.path() / "copy");
  EXPECT_NE(SharedShards::identity(folder_.path() / "copy"), here);
  EXPECT_EQ(SharedShards::identity(folder_.path() / "nothing"), "");
}

}  // namespace
}  // namespace lockstep::io
