/// Views deliver the data unchanged, except for what each view changes.
#include "io/datasets/dataset_view.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/datasets/balanced_dataset.hpp"
#include "io/datasets/checked_tokens_dataset.hpp"
#include "io/datasets/rearranged_dataset.hpp"
#include "io/datasets/relabelled_dataset.hpp"
#include "io/datasets/split_dataset.hpp"
#include "io/datasets/standardized_dataset.hpp"

namespace lockstep::io {
namespace {

using testing::ElementsAre;

constexpr std::int64_t kTalks = 40;

/// Returns values that differ from all defaults, and records its calls. Sample i is [i, -i]; its label is 0 or its
/// target i, its weight i / 10, its name "i".
class TalkingDataset final : public Dataset {
 public:
  explicit TalkingDataset(bool classes) {
    info_.samples = kTalks;
    info_.x = {.name = "x", .type = FileType::float32, .sample_shape = {2}};
    info_.y = {.name = "y", .type = FileType::float32, .sample_shape = {}};
    info_.labels_are_classes = classes;
    info_.classes = classes ? 1 : 0;
    info_.holds_weights = true;
    info_.source = "a talk";
    info_.table = TableSchema{};
    info_.id = SampleId{.name = "name", .bytes = 4};
  }
  const DatasetInfo& info() const noexcept override { return info_; }
  const std::vector<ShardInfo>& shards() const noexcept override { return shards_; }
  const std::vector<std::string>& warnings() const noexcept override { return warnings_; }
  std::string fingerprint() const override { return "what was said"; }
  FileType x_type() const noexcept override { return FileType::float32; }
  FileType y_type() const noexcept override { return info_.labels_are_classes ? FileType::int32 : FileType::float64; }
  std::size_t x_bytes() const noexcept override { return 2 * sizeof(float); }
  std::size_t y_bytes() const noexcept override { return size_of(y_type()); }
  void read(std::span<const std::int64_t> samples, std::int64_t epoch, std::span<std::byte> x,
            std::span<std::byte> y) const override {
    asked_ = {static_cast<std::int64_t>(samples.size()), epoch};
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::array pair{static_cast<float>(samples[i]), -static_cast<float>(samples[i])};
      if (!x.empty()) std::memcpy(&x[i * sizeof pair], pair.data(), sizeof pair);
      const auto target = static_cast<double>(samples[i]);
      const std::int32_t label = 0;
      if (y.empty()) continue;
      if (info_.labels_are_classes) {
        std::memcpy(&y[i * sizeof label], &label, sizeof label);
      } else {
        std::memcpy(&y[i * sizeof target], &target, sizeof target);
      }
    }
  }
  bool has_weights() const noexcept override { return true; }
  void read_weights(std::span<const std::int64_t> samples, std::span<float> weights) const override {
    std::transform(samples.begin(), samples.end(), weights.begin(),
                   [](std::int64_t sample) { return static_cast<float>(sample) / 10; });
  }
  void read_ids(std::span<const std::int64_t> samples, std::span<std::byte> ids) const override {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::string name = fmt::format("{:<4}", samples[i]);
      std::memcpy(&ids[i * 4], name.data(), 4);
    }
  }
  std::vector<std::int64_t> shard_counts() const override { return {15, 25}; }
  std::size_t stored_bytes() const noexcept override { return 77; }
  std::int64_t block_multiple() const noexcept override { return 5; }
  std::size_t cache_bytes() const noexcept override { return 4321; }
  void will_need(std::int64_t first, std::int64_t count, std::int64_t epoch) const noexcept override {
    asked_ = {first, count};
    asked_epoch_ = epoch;
  }
  std::uint64_t verify(int part, int parts) const override {
    asked_ = {part, parts};
    return 99;
  }
  void check_unchanged(int part, int parts) override { asked_ = {-part, parts}; }

  std::pair<std::int64_t, std::int64_t> asked() const { return std::exchange(asked_, {}); }
  std::int64_t asked_epoch() const { return asked_epoch_; }

 private:
  DatasetInfo info_;
  std::vector<ShardInfo> shards_ = std::vector<ShardInfo>(2);
  std::vector<std::string> warnings_{"listen"};
  mutable std::pair<std::int64_t, std::int64_t> asked_;
  mutable std::int64_t asked_epoch_ = 0;
};

/// A kind of view, and the kind of data that it needs: classes or numeric targets.
struct View {
  std::string name;
  bool classes = false;
  std::unique_ptr<Dataset> (*over)(std::shared_ptr<Dataset> data) = nullptr;
};

using Part = SplitDataset::Part;

const std::vector<View>& views() {
  static const std::vector<View> all{
      {"relabelled", true,
       [](auto data) -> std::unique_ptr<Dataset> {
         return std::make_unique<RelabelledDataset>(data, std::vector<std::int32_t>{2}, 3, std::vector<std::string>{});
       }},
      {"rearranged", false,
       [](auto data) -> std::unique_ptr<Dataset> {
         return std::make_unique<RearrangedDataset>(data, Arrangement{.features = {1, 0}, .targets = {}},
                                                    TableSchema{});
       }},
      {"standardized", false,
       [](auto data) -> std::unique_ptr<Dataset> {
         return std::make_unique<StandardizedDataset>(data, FeatureScale{.mean = {1, 1}, .deviation = {2, 2}},
                                                      FeatureScale{});
       }},
      {"checked tokens", false,
       [](auto data) -> std::unique_ptr<Dataset> {
         return std::make_unique<CheckedTokensDataset>(
             data, std::vector<TokenNumbers>{{.input = "x", .first = 0, .count = 1, .vocabulary = kTalks}}, "talk");
       }},
      {"balanced", true,  // a single class: an epoch is all of its samples
       [](auto data) -> std::unique_ptr<Dataset> {
         return std::make_unique<BalancedDataset>(data, std::vector<std::int32_t>(kTalks, 0), 1);
       }},
      {"for training", false,
       [](auto data) -> std::unique_ptr<Dataset> {
         return std::make_unique<SplitDataset>(data, 0.25, Part::training);
       }},
      {"for validation", false,
       [](auto data) -> std::unique_ptr<Dataset> {
         return std::make_unique<SplitDataset>(data, 0.25, Part::validation);
       }},
  };
  return all;
}

TEST(DatasetViewTest, NumbersThatAreNoTokensAreRefused) {
  const auto data = std::make_shared<TalkingDataset>(false);  // sample i is [i, -i]
  const auto refusal = [&](std::int64_t first, std::int64_t sample) {
    const CheckedTokensDataset view(data, {{.input = "ids", .first = first, .count = 1, .vocabulary = 7}}, "talk.h5");
    const std::vector<std::int64_t> samples{0, sample};
    std::vector<float> x(4);
    std::vector<std::byte> y(samples.size() * data->y_bytes());
    try {
      view.read(samples, 0, std::as_writable_bytes(std::span(x)), y);
    } catch (const FileError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal(0, 6), "");
  EXPECT_EQ(refusal(0, 7),
            "talk.h5: ids holds 7, and its embedding has the tokens 0 to 6: give the embedding a vocabulary of 8 or "
            "more, or map rare words to one token");
  EXPECT_THAT(refusal(1, 1), testing::HasSubstr("ids holds -1, and its embedding has the tokens 0 to 6: give padding"));
  const TokenNumbers tokens{.input = "ids", .first = 0, .count = 1, .vocabulary = 7};
  EXPECT_THAT(tokens.objection(2.5),
              testing::EndsWith("holds 2.5, and its embedding has the tokens 0 to 6: tokens are whole numbers"));
  EXPECT_THAT(tokens.objection(9.2e18), testing::EndsWith("no vocabulary has more than 16777216"));
  EXPECT_FALSE(tokens.takes(2.5));
  EXPECT_FALSE(tokens.takes(std::nan("")));
}

TEST(DatasetViewTest, WhatAViewDoesNotChangeIsWhatTheDataSay) {
  for (const View& kind : views()) {
    SCOPED_TRACE(kind.name);
    const auto data = std::make_shared<TalkingDataset>(kind.classes);
    const std::unique_ptr<Dataset> view = kind.over(data);
    const bool validation = kind.name == "for validation", split = kind.name.starts_with("for "),
               balanced = kind.name == "balanced";
    EXPECT_EQ(view->info().source, "a talk");
    EXPECT_TRUE(view->info().holds_weights);
    ASSERT_TRUE(view->info().id);
    EXPECT_EQ(view->shards().size(), 2);
    EXPECT_EQ(view->shards().data(), data->shards().data());
    EXPECT_EQ(view->warnings().size(), validation ? 0 : 1) << "said once";
    EXPECT_TRUE(view->fingerprint().starts_with("what was said"));
    EXPECT_EQ(view->x_type(), FileType::float32);
    EXPECT_EQ(view->x_bytes(), data->x_bytes());
    EXPECT_EQ(view->y_type(), kind.name == "standardized" ? FileType::float32 : data->y_type());
    EXPECT_EQ(view->y_bytes(), size_of(view->y_type()));
    EXPECT_TRUE(view->has_weights());
    EXPECT_EQ(view->stored_bytes(), 77);
    EXPECT_EQ(view->block_multiple(), 5);
    EXPECT_EQ(view->cache_bytes(), 4321 + (balanced ? 8 * kTalks : 0));
    const std::vector<std::int64_t> counts = view->shard_counts();
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}), view->info().samples);
    if (!split && !balanced) {
      EXPECT_THAT(counts, ElementsAre(15, 25));
    }

    // Samples, weights and names with one index belong to the same sample.
    const std::vector<std::int64_t> samples{3, 7};
    std::vector<float> x(4), weights(2);
    std::vector<std::byte> y(2 * view->y_bytes()), ids(8);
    data->asked();
    view->read(samples, 6, std::as_writable_bytes(std::span(x)), y);
    EXPECT_EQ(data->asked(), std::pair(2L, 6L)) << "samples and epoch";
    view->read_weights(samples, weights);
    view->read_ids(samples, ids);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const auto number = std::lround(weights[i] * 10);
      if (!split) {
        EXPECT_EQ(number, samples[i]);
      }
      const float first = kind.name == "rearranged"     ? -static_cast<float>(number)
                          : kind.name == "standardized" ? (static_cast<float>(number) - 1) / 2
                                                        : static_cast<float>(number);
      EXPECT_EQ(x[2 * i], first);
      EXPECT_EQ(std::memcmp(&ids[4 * i], fmt::format("{:<4}", number).data(), 4), 0);
    }
    std::vector<std::byte> alone(y.size());
    view->read_y(samples, alone);
    EXPECT_EQ(alone, y);
    EXPECT_EQ(data->asked(), std::pair(2L, kNoEpoch));

    view->will_need(2, 4, 6);
    const auto [first, count] = data->asked();
    EXPECT_GE(first, 2);
    EXPECT_GE(count, 4);
    EXPECT_EQ(data->asked_epoch(), 6);
    // Only one part of a split checks the files of both.
    EXPECT_EQ(view->verify(1, 3), validation ? 0 : 99);
    EXPECT_EQ(data->asked(), validation ? std::pair(0L, 0L) : std::pair(1L, 3L));
    view->check_unchanged(1, 3);
    EXPECT_EQ(data->asked(), validation ? std::pair(0L, 0L) : std::pair(-1L, 3L));
  }
}

}  // namespace
}  // namespace lockstep::io
