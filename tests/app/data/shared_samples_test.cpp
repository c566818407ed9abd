/// Samples that are in both the training and the validation data.
#include "app/data/shared_samples.hpp"

#include <cstring>
#include <functional>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::app {
namespace {

using testing::HasSubstr;

/// Samples of two numbers: sample i holds numbers(i), and numbers(i) + 1.
class Pairs final : public io::Dataset {
 public:
  Pairs(std::int64_t samples, std::function<float(std::int64_t)> numbers) : numbers_(std::move(numbers)) {
    info_.samples = samples;
    info_.x = {.name = "x", .type = io::FileType::float32, .sample_shape = {2}};
  }
  bool constant = false;  ///< both numbers are equal
  Pairs& in_file(const std::string& file, std::int64_t count, const std::string& checksum = "") {
    shards_.push_back({.file = file, .count = count, .checksum_x = checksum, .checksum_y = checksum});
    return *this;
  }

  const io::DatasetInfo& info() const noexcept override { return info_; }
  const std::vector<io::ShardInfo>& shards() const noexcept override { return shards_; }
  const std::vector<std::string>& warnings() const noexcept override { return warnings_; }
  std::string fingerprint() const override { return "these"; }
  io::FileType x_type() const noexcept override { return io::FileType::float32; }
  std::size_t x_bytes() const noexcept override { return info_.x.bytes(); }
  std::size_t y_bytes() const noexcept override { return 0; }
  void read(std::span<const std::int64_t> samples, std::int64_t, std::span<std::byte> x,
            std::span<std::byte>) const override {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const float first = numbers_(samples[i]), pair[] = {first, constant ? first : first + 1};
      std::memcpy(&x[i * sizeof pair], pair, sizeof pair);
    }
  }
  std::vector<std::int64_t> shard_counts() const override { return {info_.samples}; }
  std::size_t stored_bytes() const noexcept override { return x_bytes(); }
  std::int64_t block_multiple() const noexcept override { return 1; }
  void will_need(std::int64_t, std::int64_t, std::int64_t) const noexcept override {}
  std::uint64_t verify(int, int) const override { return 0; }
  void check_unchanged(int, int) override {}

 private:
  std::function<float(std::int64_t)> numbers_;
  io::DatasetInfo info_;
  std::vector<io::ShardInfo> shards_;
  std::vector<std::string> warnings_;
};

Pairs numbered(std::int64_t samples, std::int64_t first = 0) {
  return {samples, [first](std::int64_t sample) { return static_cast<float>(first + sample); }};
}

TEST(SharedFilesTest, PathsAndChecksumsTellThatFilesAreTheSame) {
  Pairs training = numbered(30), validation = numbered(20), copy = numbered(30), other = numbered(20);
  training.in_file("data/a.h5", 10, "aa").in_file("data/b.h5", 20, "bb");
  EXPECT_THAT(shared_files(training, training), HasSubstr("are the training data"));
  validation.in_file("data/../data/b.h5", 20).in_file("data/c.h5", 5);
  EXPECT_EQ(shared_files(training, validation),
            "20 of 25 validation samples are training data, too (those in data/../data/b.h5)");
  copy.in_file("else/x.h5", 10, "aa").in_file("else/y.h5", 20, "bb");
  EXPECT_THAT(shared_files(training, copy), HasSubstr("or a copy of them"));
  other.in_file("else/a.h5", 10, "cc").in_file("else/b.h5", 20);
  EXPECT_EQ(shared_files(training, other), "") << "files of one name elsewhere";
}

TEST(SampleTwinsTest, ValidationSamplesAmongTheTrainingSamplesLeak) {
  const SampleTwins twins = find_twins(numbered(1000), numbered(100, 950));
  EXPECT_EQ(twins.shared, 50);
  EXPECT_EQ(twins.repeated, 0);
  EXPECT_TRUE(twins.all_compared);
  EXPECT_TRUE(twins.leaks());
  EXPECT_EQ(twins.in_words(), "50 of 100 validation samples equal a training sample");
}

TEST(SampleTwinsTest, OtherSamplesDoNot) {
  const SampleTwins twins = find_twins(numbered(1000), numbered(100, 1000));
  EXPECT_FALSE(twins.leaks());
  EXPECT_EQ(twins.in_words(), "");
}

TEST(SampleTwinsTest, EqualRowsOfFewCategoriesAreNatural) {
  const auto category = [](std::int64_t sample) { return static_cast<float>(sample % 7); };
  const SampleTwins twins = find_twins(Pairs(1000, category), Pairs(100, category));
  EXPECT_EQ(twins.shared, 100);
  EXPECT_FALSE(twins.leaks());
  EXPECT_EQ(twins.in_words(),
            "100 of 100 validation samples equal a training sample, 1,000 of 1,000 training samples another one");
}

TEST(SampleTwinsTest, SamplesOfOneNumberAreNotCompared) {
  Pairs training = numbered(50), validation = numbered(50);
  training.constant = validation.constant = true;
  const SampleTwins twins = find_twins(training, validation);
  EXPECT_EQ(twins.validation, 0);
  EXPECT_FALSE(twins.leaks());
}

}  // namespace
}  // namespace lockstep::app
