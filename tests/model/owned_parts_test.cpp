#include "model/owned_parts.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/model.hpp"
#include "now.hpp"
#include "sample_data.hpp"

namespace lockstep::model {
namespace {

/// In the arena: weights 2 at 0+100 (padded to 128), weights 1 at 128+64 (not decayed), statistics at 192+32 (to 256).
ParameterTable small_table() {
  ParameterTable table;
  table.add({.name = "statistic", .shape = {32}, .initializer = {}, .decay = Decay::no, .role = Role::statistic});
  table.add({.name = "one", .shape = {64}, .initializer = {}, .decay = Decay::no});
  table.add({.name = "two", .shape = {100}, .initializer = {}});
  table.freeze();
  return table;
}

TEST(OwnedParts, AreEverythingWithoutRanges) {
  const ParameterTable table = small_table();
  const OwnedParts owned(table, {});
  EXPECT_TRUE(owned.whole());
  EXPECT_EQ(owned.state_elements(), table.arena_elements());
  ASSERT_EQ(owned.parts().size(), 1u);
  EXPECT_EQ(owned.parts()[0].range.count, table.arena_elements());
  EXPECT_EQ(owned.parts()[0].trained, table.trained_elements());
  ASSERT_EQ(owned.parts()[0].slices.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(owned.parts()[0].slices[i].offset, table[i].offset);
    EXPECT_EQ(owned.parts()[0].slices[i].count, table[i].count);
  }
}

TEST(OwnedParts, CutParametersAndCountFromTheirOwnBeginning) {
  const ParameterTable table = small_table();
  ASSERT_EQ(table[2].offset, 0u);
  ASSERT_EQ(table[1].offset, 128u);
  ASSERT_EQ(table[0].offset, 192u);
  const std::vector<ArenaRange> ranges{{16, 16}, {48, 0}, {64, 80}, {176, 80}};
  const OwnedParts owned(table, ranges);
  EXPECT_FALSE(owned.whole());
  ASSERT_EQ(owned.parts().size(), 4u);
  EXPECT_TRUE(owned.parts()[1].slices.empty());
  EXPECT_EQ(owned.state_elements(), 64u + 128 + 128);
  const auto& [first, second, third] = std::tie(owned.parts()[0], owned.parts()[2], owned.parts()[3]);
  ASSERT_EQ(first.slices.size(), 1u);
  EXPECT_EQ(first.slices[0].offset, 0u);
  EXPECT_EQ(first.slices[0].count, 16u);
  EXPECT_TRUE(first.slices[0].decayed);
  EXPECT_EQ(first.trained, 16u);
  ASSERT_EQ(second.slices.size(), 2u) << "the end of one weight and the beginning of the other";
  EXPECT_EQ(second.slices[0].offset, 64u);
  EXPECT_EQ(second.slices[0].count, 16u);
  EXPECT_FALSE(second.slices[0].decayed);
  EXPECT_EQ(second.slices[1].offset, 0u);
  EXPECT_EQ(second.slices[1].count, 36u) << "without the padding";
  EXPECT_EQ(second.state_offset, 64u);
  EXPECT_EQ(third.trained, 16u) << "what comes behind are statistics";
  ASSERT_EQ(third.slices.size(), 2u);
  EXPECT_TRUE(third.slices[0].statistic);
  EXPECT_EQ(third.slices[0].offset, 16u);
  EXPECT_EQ(owned.state_offset({70, 10}), 64u + 6);
  EXPECT_EQ(owned.state_offset({64, 81}), std::nullopt);
  EXPECT_EQ(owned.state_offset({0, 16}), std::nullopt);
}

TEST(OwnedParts, RefuseWhatOverlapsOrReachesBeyond) {
  const ParameterTable table = small_table();
  for (const auto& ranges : std::vector<std::vector<ArenaRange>>{{{0, 257}}, {{257, 0}}, {{0, 64}, {48, 16}}}) {
    EXPECT_THROW(OwnedParts(table, ranges), std::invalid_argument);
  }
}

constexpr std::int64_t kFeatures = 20, kClasses = 5, kSamples = 64;

class SharedUpdateTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kOwners = 3;

  Model make(const OptimizerOptions& optimizer, std::vector<ArenaRange> owned) const {
    Model model(*backend_, *network_, {.optimizer = optimizer, .max_batch = kSamples, .owned = std::move(owned)});
    model.initialize(7);
    return model;
  }
  /// Of two buckets each owner has a piece; the third has nothing of the first bucket.
  std::vector<ArenaRange> owned_by(std::size_t owner) const {
    const std::size_t all = network_->parameters().arena_elements(), half = all / 2 / 64 * 64, share = 176;
    if (owner < 2) return {{owner * (half - 64), owner == 0 ? half - 64 : 64}, {half + owner * share, share}};
    return {{half, 0}, {half + 2 * share, all - half - 2 * share}};
  }
  static std::vector<float> download(Model& model, std::string_view group) {
    std::vector<float> values(model.arena_elements());
    model.download_group(group, values);
    return values;
  }
  /// A step of `whole` and the same one shared by `owners`.
  void step(Model& whole, std::vector<Model>& owners, const OptimizerOptions& options, std::int64_t t) const {
    const Batch batch{.x = x_.data() + t * kFeatures, .y = y_.data() + t, .count = 32};
    const UpdateRule rule = update_rule(options, 0.05, t);
    test::forward_backward(whole, batch, 1.0 / 32);
    test::finish_step(whole, rule);
    double squares = 0;
    for (Model& owner : owners) {
      test::forward_backward(owner, batch, 1.0 / 32);
      const std::vector<float> mine(owner.gradients().begin(), owner.gradients().end());
      std::ranges::fill(owner.gradients(), std::nanf(""));  // what others own is unspecified
      for (const ArenaRange& range : owned_by(static_cast<std::size_t>(&owner - owners.data()))) {
        std::copy_n(mine.begin() + static_cast<std::ptrdiff_t>(range.offset), range.count,
                    owner.gradients().begin() + static_cast<std::ptrdiff_t>(range.offset));
      }
      owner.write_ballot(std::array<double, kBallotSize>{});
      owner.write_rule(rule);
      owner.tally();
      owner.finish_gradients();
      ASSERT_EQ(owner.ballot().size(), kBallotSize + 1);
      squares += owner.ballot().back();
    }
    const double norm = whole.results().gradient_norm, exact = squares_of_gradients(whole);
    if (owners.empty()) return;
    EXPECT_NEAR(std::sqrt(squares), norm, 1e-12 * norm);
    for (Model& owner : owners) {
      owner.ballot().back() = exact;  // sums of sums round differently
      std::vector<std::size_t> updated;
      owner.update([&](std::size_t part) { updated.push_back(part); });
      EXPECT_EQ(updated, (std::vector<std::size_t>{0, 1}));
    }
    for (const Weights weights : {Weights::current, Weights::average}) {
      if (weights == Weights::average && options.average_decay == 0) continue;
      for (Model& to : owners) {
        for (std::size_t from = 0; from < owners.size(); ++from) {
          for (const ArenaRange& range : owned_by(from)) {
            std::ranges::copy(owners[from].weights(weights).subspan(range.offset, range.count),
                              to.weights(weights).begin() + static_cast<std::ptrdiff_t>(range.offset));
          }
        }
        if (weights == Weights::current) to.parameters_were_brought();
      }
    }
  }
  double squares_of_gradients(Model& model) const {
    const auto trained = static_cast<std::int64_t>(network_->parameters().trained_elements());
    return sum_of_squares_now(*backend_, {model.gradients().data(), ElementType::float32, 1, trained});
  }

  std::unique_ptr<Backend> backend_ = make_backend("cpu");
  std::unique_ptr<Network> network_ = make_network({.hidden = {16, 12}}, {kFeatures, kClasses});
  std::vector<float> x_ = test::samples<float>("x", kSamples* kFeatures);
  std::vector<std::int32_t> y_ = test::labels(kSamples, kClasses);
};

TEST_F(SharedUpdateTest, IsTheWholeOneBitForBit) {
  const std::vector<OptimizerOptions> rules{
      {.kind = OptimizerKind::sgd, .weight_decay = 0.01},
      {.kind = OptimizerKind::momentum, .l2 = 0.01, .average_decay = 0.9},
      {.kind = OptimizerKind::nesterov, .clip_norm = 0.5},
      {.kind = OptimizerKind::adam, .clip_value = 0.01, .average_decay = 0.99},
      {.kind = OptimizerKind::adamw, .l2 = 0.001, .weight_decay = 0.1, .clip_norm = 0.1},
  };
  for (const OptimizerOptions& options : rules) {
    Model whole = make(options, {});
    std::vector<Model> owners;
    for (std::size_t i = 0; i < kOwners; ++i) owners.push_back(make(options, owned_by(i)));
    for (std::int64_t t = 0; t < 6; ++t) step(whole, owners, options, t);
    for (const std::string& group : whole.state_groups()) {
      const std::vector<float> expected = download(whole, group);
      std::vector<float> together(expected.size());
      for (std::size_t i = 0; i < kOwners; ++i) {
        for (const ArenaRange& range : owned_by(i)) {
          owners[i].download_range(group, range, std::span(together).subspan(range.offset, range.count));
        }
      }
      EXPECT_EQ(together, expected) << name_of(options.kind) << " " << group;
      EXPECT_GT(std::ranges::count_if(expected, [](float v) { return v != 0; }), 100);
    }
    for (Model& owner : owners) EXPECT_EQ(download(owner, "parameters"), download(whole, "parameters"));
  }
}

TEST_F(SharedUpdateTest, ResumesFromGroupsOfTheWhole) {
  const OptimizerOptions options{.kind = OptimizerKind::adam};
  Model whole = make(options, {});
  std::vector<Model> owners, none;
  for (std::int64_t t = 0; t < 3; ++t) step(whole, none, options, t);
  for (std::size_t i = 0; i < kOwners; ++i) {
    Model& owner = owners.emplace_back(make(options, owned_by(i)));
    for (const std::string& group : whole.state_groups()) owner.upload_group(group, download(whole, group));
    std::vector<float> state(owner.arena_elements(), 7);
    owner.download_group("second_moment", state);
    const std::vector<float> expected = download(whole, "second_moment");
    std::vector<bool> own(state.size());
    for (const ArenaRange& range : owned_by(i))
      std::fill_n(own.begin() + static_cast<std::ptrdiff_t>(range.offset), range.count, true);
    for (std::size_t e = 0; e < state.size(); ++e) EXPECT_EQ(state[e], own[e] ? expected[e] : 7) << e;
  }
  for (std::int64_t t = 3; t < 6; ++t) step(whole, owners, options, t);
  for (Model& owner : owners) EXPECT_EQ(download(owner, "parameters"), download(whole, "parameters"));
}

TEST_F(SharedUpdateTest, AClosedGateTouchesNothing) {
  const OptimizerOptions options{.kind = OptimizerKind::momentum};
  Model owner = make(options, owned_by(0));
  const std::vector<float> before = download(owner, "parameters");
  test::forward_backward(owner, {.x = x_.data(), .y = y_.data(), .count = 32}, 1.0 / 32);
  owner.write_rule(update_rule(options, 0.05, 0));
  owner.finish_gradients();
  owner.ballot().back() = std::nan("");  // a number of another owner's that is not finite
  owner.update();
  owner.post_results();
  EXPECT_EQ(download(owner, "parameters"), before);
  EXPECT_TRUE(std::isnan(owner.results().gradient_norm));
}

TEST_F(SharedUpdateTest, TakesAShareOfTheMemory) {
  const OptimizerOptions options{.kind = OptimizerKind::adam};
  const MemoryTypes types = memory_types(*backend_);
  const std::size_t whole = plan_memory(*network_, {.optimizer = options}, types).optimizer;
  std::size_t together = 0;
  for (std::size_t i = 0; i < kOwners; ++i) {
    const std::size_t own = plan_memory(*network_, {.optimizer = options, .owned = owned_by(i)}, types).optimizer;
    EXPECT_LT(own, whole);
    together += own;
  }
  EXPECT_GE(together, whole);
  EXPECT_LE(together, whole + kOwners * 2 * 2 * 64 * sizeof(float)) << "padding of two pieces in two arenas";
}

TEST_F(SharedUpdateTest, AnOwnerOfNothingTakesPart) {
  const OptimizerOptions options{.kind = OptimizerKind::adam};
  Model idle = make(options, {{0, 0}});
  const std::vector<float> before = download(idle, "parameters");
  test::forward_backward(idle, {.x = x_.data(), .y = y_.data(), .count = 32}, 1.0 / 32);
  test::finish_step(idle, update_rule(options, 0.05, 0));
  EXPECT_EQ(idle.results().gradient_norm, 0);
  EXPECT_EQ(download(idle, "parameters"), before);
  for (const std::string& group : idle.state_groups()) idle.upload_group(group, before);
}

TEST_F(SharedUpdateTest, RefusesWhatCannotBeShared) {
  EXPECT_THROW(make({.kind = OptimizerKind::lars}, owned_by(0)), std::invalid_argument);
  EXPECT_THROW(make({.kind = OptimizerKind::lamb}, owned_by(0)), std::invalid_argument);
  Model owner = make({.kind = OptimizerKind::momentum}, owned_by(1));
  std::vector<float> some(64), all(owner.arena_elements() - 1);
  EXPECT_THROW(owner.download_range("velocity", {0, 64}, some), std::invalid_argument) << "is not its own";
  EXPECT_THROW(owner.upload_group("velocity", all), std::invalid_argument);
  EXPECT_THROW(owner.download_group("velocity", all), std::invalid_argument);
  EXPECT_THROW(owner.weights(Weights::average), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::model
