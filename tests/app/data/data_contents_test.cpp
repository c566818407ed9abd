/// A checksum of what files without checksums hold.
#include "app/data/data_contents.hpp"

#include <algorithm>
#include <cstring>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/host/serial_communicator.hpp"
#include "io/datasets/dataset_view.hpp"

namespace lockstep::app {
namespace {

/// Samples of `floats` equal numbers and a label each, which read() makes.
class Rows final : public io::Dataset {
 public:
  Rows(std::int64_t samples, std::int64_t floats) {
    info_.samples = samples;
    info_.x = {.name = "x", .type = io::FileType::float32, .sample_shape = {floats}};
    info_.y = {.name = "y", .type = io::FileType::int32, .sample_shape = {}};
    shards_.resize(1);
  }
  std::set<std::int64_t> other_x = {}, other_y = {}, other_weights = {};
  bool weighted = false;
  std::int64_t multiple = 1;
  std::string name = "these";
  mutable std::set<std::int64_t> seen = {};

  void set_checksum() { shards_[0].checksum_x = "ab"; }
  const io::DatasetInfo& info() const noexcept override { return info_; }
  const std::vector<io::ShardInfo>& shards() const noexcept override { return shards_; }
  const std::vector<std::string>& warnings() const noexcept override { return warnings_; }
  std::string fingerprint() const override { return name; }
  io::FileType x_type() const noexcept override { return io::FileType::float32; }
  std::size_t x_bytes() const noexcept override { return info_.x.bytes(); }
  std::size_t y_bytes() const noexcept override { return sizeof(std::int32_t); }
  void read(std::span<const std::int64_t> samples, std::int64_t, std::span<std::byte> x,
            std::span<std::byte> y) const override {
    const auto floats = static_cast<std::size_t>(info_.x.elements());
    for (std::size_t i = 0; i < samples.size(); ++i) {
      seen.insert(samples[i]);
      const std::vector<float> row(floats, static_cast<float>(samples[i]) + (other_x.contains(samples[i]) ? 0.5f : 0));
      std::memcpy(&x[i * x_bytes()], row.data(), x_bytes());
      const std::int32_t label = other_y.contains(samples[i]) ? 1 : 0;
      std::memcpy(&y[i * y_bytes()], &label, y_bytes());
    }
  }
  bool has_weights() const noexcept override { return weighted; }
  void read_weights(std::span<const std::int64_t> samples, std::span<float> weights) const override {
    std::ranges::transform(samples, weights.begin(),
                           [&](std::int64_t one) { return other_weights.contains(one) ? 2 : 1; });
  }
  std::vector<std::int64_t> shard_counts() const override { return {info_.samples}; }
  std::size_t stored_bytes() const noexcept override { return x_bytes() + y_bytes(); }
  std::int64_t block_multiple() const noexcept override { return multiple; }
  void will_need(std::int64_t, std::int64_t, std::int64_t) const noexcept override {}
  std::uint64_t verify(int, int) const override { return 0; }
  void check_unchanged(int, int) override {}

 private:
  io::DatasetInfo info_;
  std::vector<io::ShardInfo> shards_;
  std::vector<std::string> warnings_;
};

class View final : public io::DatasetView {
 public:
  explicit View(std::shared_ptr<io::Dataset> data) : DatasetView(std::move(data)) {}
};

/// The fingerprint of `data`, which stays the caller's.
std::string contents(Rows& data) {
  comm::SerialCommunicator alone;
  return with_contents(alone, std::make_unique<View>(std::shared_ptr<io::Dataset>(&data, [](io::Dataset*) {})))
      ->fingerprint();
}

TEST(DataContentsTest, SeeEachNumberLabelAndWeightOfSmallData) {
  for (const std::int64_t multiple : {1, 7, 5000}) {
    Rows data(3000, 100);
    data.multiple = multiple;
    data.weighted = true;
    const std::string before = contents(data);
    EXPECT_EQ(std::ssize(data.seen), 3000) << multiple;
    EXPECT_EQ(contents(data), before);
    for (const std::int64_t one : {0, 1234, 2999}) {
      for (std::set<std::int64_t>* const others : {&data.other_x, &data.other_y, &data.other_weights}) {
        others->insert(one);
        EXPECT_NE(contents(data), before) << one;
        others->clear();
      }
    }
  }
}

TEST(DataContentsTest, ReadEvenPiecesOfLargeData) {
  Rows data(1'000'000, 40);
  const std::string before = contents(data);
  EXPECT_LT(data.seen.size(), std::size_t{110'000});
  for (std::int64_t quarter = 0; quarter < 250; ++quarter) {
    EXPECT_TRUE(data.seen.lower_bound(quarter * 4000) != data.seen.lower_bound((quarter + 1) * 4000)) << quarter;
  }
  data.other_x.insert(*data.seen.rbegin());
  EXPECT_NE(contents(data), before);
}

TEST(DataContentsTest, ReadFewChunksThatAreLarge) {
  Rows data(1'000'000, 40);
  data.multiple = 100'000;
  contents(data);
  EXPECT_LE(data.seen.size(), std::size_t{4 * 400});
  Rows volumes(20, 6'000'000);
  contents(volumes);
  EXPECT_EQ(volumes.seen.size(), std::size_t{4});
}

TEST(DataContentsTest, AreThoseOfFilesOfAnyNameInOneOrder) {
  comm::SerialCommunicator alone;
  const auto contents_of = [&](const Rows& rows) {
    return with_contents(alone, std::make_unique<Rows>(rows))->contents();
  };
  Rows data(10, 3);
  const std::string before = contents_of(data);
  EXPECT_NE(before, "");
  data.name = "those";
  EXPECT_EQ(contents_of(data), before);
  data.multiple = 5;
  EXPECT_NE(contents_of(data), before) << "the order of the samples depends on the blocks";
  data.multiple = 1;
  data.other_x.insert(4);
  EXPECT_NE(contents_of(data), before);
  EXPECT_EQ(contents_of(Rows(1'000'000, 40)), "") << "only pieces are read";
}

TEST(DataContentsTest, CanBeLeftOutOfTheFingerprint) {
  comm::SerialCommunicator alone;
  const auto data = with_contents(alone, std::make_unique<Rows>(10, 3));
  EXPECT_THAT(data->fingerprint(), testing::MatchesRegex("these, contents [0-9a-f]{16}"));
  EXPECT_EQ(fingerprint_without_contents(*data), "these");
  EXPECT_EQ(fingerprint_without_contents(Rows(10, 3)), "these");
}

TEST(DataContentsTest, AreThoseOfTheFingerprintWhereThereAreChecksums) {
  Rows data(10, 3);
  data.set_checksum();
  EXPECT_EQ(contents(data), "these");
  EXPECT_TRUE(data.seen.empty());
}

}  // namespace
}  // namespace lockstep::app
