/// A predictor that looks at no sample.
#include "app/plan/constant_predictor.hpp"

#include <algorithm>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/host/serial_communicator.hpp"

namespace lockstep::app {
namespace {

using model::LossKind;
using testing::ElementsAre;
using testing::IsEmpty;

/// Rows of numbers to predict.
class Targets final : public io::Dataset {
 public:
  Targets(std::vector<float> numbers, std::int64_t targets) : numbers_(std::move(numbers)) {
    info_.samples = std::ssize(numbers_) / targets;
    info_.x = {.name = "x", .type = io::FileType::float32, .sample_shape = {1}};
    info_.y = {.name = "y", .type = io::FileType::float32, .sample_shape = {targets}};
    info_.labels_are_classes = false;
  }
  std::string checksum = "ab";

  const io::DatasetInfo& info() const noexcept override { return info_; }
  const std::vector<io::ShardInfo>& shards() const noexcept override {
    shards_.resize(1);
    shards_[0].checksum_y = checksum;
    return shards_;
  }
  const std::vector<std::string>& warnings() const noexcept override { return warnings_; }
  std::string fingerprint() const override { return "these"; }
  io::FileType x_type() const noexcept override { return io::FileType::float32; }
  std::size_t x_bytes() const noexcept override { return sizeof(float); }
  std::size_t y_bytes() const noexcept override { return info_.y.bytes(); }
  void read(std::span<const std::int64_t> samples, std::int64_t, std::span<std::byte>,
            std::span<std::byte> y) const override {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      std::memcpy(&y[i * y_bytes()], &numbers_[static_cast<std::size_t>(samples[i] * info_.y.elements())], y_bytes());
    }
  }
  std::vector<std::int64_t> shard_counts() const override { return {info_.samples}; }
  std::size_t stored_bytes() const noexcept override { return 8; }
  std::int64_t block_multiple() const noexcept override { return 1; }
  void will_need(std::int64_t, std::int64_t, std::int64_t) const noexcept override {}
  std::uint64_t verify(int, int) const override { return 0; }
  void check_unchanged(int, int) override {}

 private:
  std::vector<float> numbers_;
  io::DatasetInfo info_;
  mutable std::vector<io::ShardInfo> shards_;
  std::vector<std::string> warnings_;
};

ConstantPredictor found(const Targets& data, LossKind loss, std::uint64_t max_bytes = kMaxLabelBytes) {
  comm::SerialCommunicator alone;
  return find_constant(alone, data, loss, max_bytes);
}

TEST(ConstantPredictorTest, LossesOfAbsoluteErrorsHaveTheMedianOthersTheMean) {
  const Targets data({-1e30f, 5, -0.0f, 1, 3e-39f, 1e30f, 7, 2, -4}, 1);
  EXPECT_THAT(found(data, LossKind::mean_absolute_error).values, ElementsAre(1));
  EXPECT_THAT(found(data, LossKind::huber).values, ElementsAre(1));
  EXPECT_EQ(found(data, LossKind::huber).words, "the median of the training targets");
  const Targets even({4, 1, 3, 2}, 1);
  EXPECT_THAT(found(even, LossKind::mean_absolute_error).values, ElementsAre(2.5));
  EXPECT_THAT(found(even, LossKind::mean_squared_error).values, ElementsAre(2.5));
  EXPECT_EQ(found(even, LossKind::mean_squared_error).words, "the mean of the training targets");
  EXPECT_THAT(found(Targets({9}, 1), LossKind::huber).values, ElementsAre(9));
  EXPECT_THAT(found(Targets({2, 2, 2, 2}, 1), LossKind::huber).values, ElementsAre(2));
}

TEST(ConstantPredictorTest, MediansAreExactForFewAndForManyTargets) {
  for (const std::int64_t targets : {1, 3, 17, 5000}) {  // 16, 16, 8, 4 bits of a number in a pass
    constexpr std::int64_t kSamples = 30;
    std::vector<float> numbers;
    std::uint32_t state = 7;
    for (std::int64_t i = 0; i < kSamples * targets; ++i) {
      state = state * 1664525 + 1013904223;
      numbers.push_back((static_cast<float>(state >> 8) - 8e6f) * (i % 7 == 0 ? 1e-9f : 1));
    }
    const std::vector<float> values = found(Targets(numbers, targets), LossKind::mean_absolute_error).values;
    ASSERT_EQ(std::ssize(values), targets);
    for (std::int64_t k = 0; k < targets; ++k) {
      std::vector<double> own;
      for (std::int64_t i = 0; i < kSamples; ++i) own.push_back(numbers[static_cast<std::size_t>(i * targets + k)]);
      std::ranges::sort(own);
      ASSERT_EQ(values[static_cast<std::size_t>(k)], static_cast<float>((own[14] + own[15]) / 2))
          << targets << " " << k;
    }
  }
}

TEST(ConstantPredictorTest, SaysThatItKnowsSomeOfTheLabelsAlone) {
  std::vector<float> numbers(std::size_t{1} << 20, 1);
  std::fill(numbers.begin() + (1 << 18), numbers.end(), 3.0f);
  const Targets data(numbers, 1);
  for (const LossKind loss : {LossKind::mean_absolute_error, LossKind::mean_squared_error}) {
    const ConstantPredictor constant = found(data, loss, std::uint64_t{1} << 20);
    EXPECT_TRUE(constant.in_part);
    EXPECT_THAT(constant.words, testing::HasSubstr("of some of the training targets"));
    io::DataDescription description;
    description.labels = io::Labels::targets;
    store_constant(constant, description);
    EXPECT_EQ(stored_constant(description, loss).words, constant.words);
    EXPECT_FALSE(found(data, loss).in_part);
  }
}

TEST(ConstantPredictorTest, ARunThatGoesOnKnowsItWhereItsDataAreTheSame) {
  Targets data({4, 1, 3, 9}, 1);
  const io::FeatureScale scale{.mean = {1}, .deviation = {2}};
  const ConstantPredictor constant = found(data, LossKind::huber);
  io::DataDescription description;
  description.x = data.info().x;
  description.labels = io::Labels::targets;
  description.targets = scale;
  store_constant(constant, description);
  io::TrainingRecord record;
  record.dataset = data.fingerprint();
  record.data_description = io::to_json(description);
  const ConstantPredictor known = known_constant(record, data, scale, LossKind::huber);
  EXPECT_THAT(known.values, ElementsAre(3.5));
  EXPECT_EQ(known.words, constant.words);
  EXPECT_TRUE(known_constant(record, data, {}, LossKind::huber).empty()) << "another scale of the targets";
  EXPECT_TRUE(known_constant(record, data, scale, LossKind::mean_squared_error).empty()) << "that is a mean";
  EXPECT_TRUE(known_constant(record, Targets({1, 2}, 2), scale, LossKind::huber).empty());
  data.checksum.clear();
  EXPECT_TRUE(known_constant(record, data, scale, LossKind::huber).empty()) << "nobody knows whether they are the same";
  data.checksum = "ab";
  record.dataset = "those";
  EXPECT_TRUE(known_constant(record, data, scale, LossKind::huber).empty());
  EXPECT_TRUE(known_constant({}, data, scale, LossKind::huber).empty());
}

}  // namespace
}  // namespace lockstep::app
