#include "model/state/owned_parts.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/state/memory_plan.hpp"
#include "model/training/training.hpp"
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
  table.lay_out();
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
  const std::vector<Slice> ranges{{16, 16}, {48, 0}, {64, 80}, {176, 80}};
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
  for (const auto& ranges : std::vector<std::vector<Slice>>{{{0, 257}}, {{257, 0}}, {{0, 64}, {48, 16}}}) {
    EXPECT_THROW(OwnedParts(table, ranges), std::invalid_argument);
  }
}

class SharedUpdateTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kOwners = 3;
  static constexpr std::int64_t kFeatures = 20, kClasses = 5, kSamples = 64;

  using Owners = std::deque<test::SeededTraining>;

  test::SeededTraining make(const OptimizerOptions& optimizer, std::vector<Slice> owned) const {
    return {*backend_, *network_, {.max_batch = kSamples}, {.optimizer = optimizer, .owned = std::move(owned)}};
  }
  test::SeededTraining& add_owner(Owners& owners, const OptimizerOptions& optimizer) const {
    return owners.emplace_back(*backend_, *network_, ModelOptions{.max_batch = kSamples},
                               ParameterStateOptions{.optimizer = optimizer, .owned = owned_by(owners.size())});
  }
  /// Two buckets. Each owner has a part of each, except that the third has no part of the first bucket.
  std::vector<Slice> owned_by(std::size_t owner) const {
    const std::size_t all = network_->parameters().arena_elements(), half = all / 2 / 64 * 64, share = 176;
    if (owner < 2) return {{owner * (half - 64), owner == 0 ? half - 64 : 64}, {half + owner * share, share}};
    return {{half, 0}, {half + 2 * share, all - half - 2 * share}};
  }
  static std::vector<float> download(Training& training, std::string_view group) {
    std::vector<float> values(training.parameters.elements());
    training.parameters.download_group(group, values);
    return values;
  }
  /// 32 samples from `first` on.
  Batch batch(std::int64_t first) const {
    return {.x = host_tensor(x_.data() + first * kFeatures, 32, kFeatures), .y = host_tensor(y_.data() + first, 32, 1)};
  }
  /// Makes a step of `whole`, and the same step shared by `owners`.
  void step(Training& whole, Owners& owners, const OptimizerOptions& options, std::int64_t t) const {
    const Batch now = batch(t);
    const UpdateRule rule = update_rule(options, 0.05, t);
    test::forward_backward(whole, now, 1.0 / 32);
    test::finish_step(whole, rule);
    double squares = 0;
    for (std::size_t i = 0; i < owners.size(); ++i) {
      Training& owner = owners[i];
      test::forward_backward(owner, now, 1.0 / 32);
      const std::vector<float> mine(owner.parameters.gradient_elements().begin(),
                                    owner.parameters.gradient_elements().end());
      std::ranges::fill(owner.parameters.gradient_elements(),
                        std::nanf(""));  // gradients of other owners are unspecified
      for (const Slice& range : owned_by(i)) {
        std::copy_n(mine.begin() + static_cast<std::ptrdiff_t>(range.offset), range.count,
                    owner.parameters.gradient_elements().begin() + static_cast<std::ptrdiff_t>(range.offset));
      }
      owner.status.write({});
      owner.optimizer.prepare(rule);
      owner.status.report_loss(owner.model.loss_sums());
      owner.optimizer.finish_gradients();
      ASSERT_EQ(owner.status.summed().size(), kStepStatusSize);
      squares += owner.status.summed().back();
    }
    const double norm = test::gradient_norm(whole), exact = squares_of_gradients(whole);
    if (owners.empty()) return;
    EXPECT_NEAR(std::sqrt(squares), norm, 1e-12 * norm);
    for (Training& owner : owners) {
      owner.status.summed().back() = exact;  // sums of partial sums round differently
      std::vector<std::size_t> updated;
      owner.optimizer.update([&](std::size_t part) { updated.push_back(part); });
      EXPECT_EQ(updated, (std::vector<std::size_t>{0, 1}));
    }
    for (const Weights weights : {Weights::current, Weights::average}) {
      if (weights == Weights::average && options.average_decay == 0) continue;
      for (Training& to : owners) {
        for (std::size_t from = 0; from < owners.size(); ++from) {
          for (const Slice& range : owned_by(from)) {
            std::ranges::copy(
                owners[from].parameters.weight_elements(weights).subspan(range.offset, range.count),
                to.parameters.weight_elements(weights).begin() + static_cast<std::ptrdiff_t>(range.offset));
          }
        }
        if (weights == Weights::current) to.parameters.refresh_compute_copy(Weights::current);
      }
    }
  }
  double squares_of_gradients(Training& training) const {
    const auto trained = static_cast<std::int64_t>(network_->parameters().trained_elements());
    return sum_of_squares_now(*backend_,
                              {training.parameters.gradient_elements().data(), ElementType::float32, 1, trained});
  }

  std::unique_ptr<Backend> backend_ = make_backend("cpu");
  std::unique_ptr<Network> network_ = make_network({.values = {{"hidden", Numbers{16, 12}}}}, {kFeatures, kClasses});
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
    auto whole = make(options, {});
    Owners owners;
    for (std::size_t i = 0; i < kOwners; ++i) add_owner(owners, options);
    for (std::int64_t t = 0; t < 6; ++t) step(whole, owners, options, t);
    for (const std::string& group : whole.parameters.state_groups()) {
      const std::vector<float> expected = download(whole, group);
      std::vector<float> together(expected.size());
      for (std::size_t i = 0; i < kOwners; ++i) {
        for (const Slice& range : owned_by(i)) {
          owners[i].parameters.download_range(group, range, std::span(together).subspan(range.offset, range.count));
        }
      }
      EXPECT_EQ(together, expected) << name_of(options.kind) << " " << group;
      EXPECT_GT(std::ranges::count_if(expected, [](float v) { return v != 0; }), 100);
    }
    for (Training& owner : owners) EXPECT_EQ(download(owner, "parameters"), download(whole, "parameters"));
  }
}

TEST_F(SharedUpdateTest, ResumesFromGroupsOfTheWhole) {
  const OptimizerOptions options{.kind = OptimizerKind::adam};
  auto whole = make(options, {});
  Owners owners, none;
  for (std::int64_t t = 0; t < 3; ++t) step(whole, none, options, t);
  for (std::size_t i = 0; i < kOwners; ++i) {
    Training& owner = add_owner(owners, options);
    for (const std::string& group : whole.parameters.state_groups())
      owner.parameters.upload_group(group, download(whole, group));
    std::vector<float> state(owner.parameters.elements(), 7);
    owner.parameters.download_group("second_moment", state);
    const std::vector<float> expected = download(whole, "second_moment");
    std::vector<bool> own(state.size());
    for (const Slice& range : owned_by(i))
      std::fill_n(own.begin() + static_cast<std::ptrdiff_t>(range.offset), range.count, true);
    for (std::size_t e = 0; e < state.size(); ++e) EXPECT_EQ(state[e], own[e] ? expected[e] : 7) << e;
  }
  for (std::int64_t t = 3; t < 6; ++t) step(whole, owners, options, t);
  for (Training& owner : owners) EXPECT_EQ(download(owner, "parameters"), download(whole, "parameters"));
}

TEST_F(SharedUpdateTest, AClosedGateTouchesNothing) {
  const OptimizerOptions options{.kind = OptimizerKind::momentum};
  auto owner = make(options, owned_by(0));
  const std::vector<float> before = download(owner, "parameters");
  test::forward_backward(owner, batch(0), 1.0 / 32);
  owner.optimizer.prepare(update_rule(options, 0.05, 0));
  owner.optimizer.finish_gradients();
  owner.status.summed().back() = std::nan("");  // a non-finite number of another owner
  owner.optimizer.update();
  owner.status.post();
  EXPECT_EQ(download(owner, "parameters"), before);
  EXPECT_TRUE(std::isnan(test::gradient_norm(owner)));
}

TEST_F(SharedUpdateTest, TakesAShareOfTheMemory) {
  const OptimizerOptions options{.kind = OptimizerKind::adam};
  const MemoryTypes types = memory_types(*backend_);
  const std::size_t whole = plan_memory(*network_, {}, {.optimizer = options}, types).optimizer;
  std::size_t together = 0;
  for (std::size_t i = 0; i < kOwners; ++i) {
    const std::size_t own = plan_memory(*network_, {}, {.optimizer = options, .owned = owned_by(i)}, types).optimizer;
    EXPECT_LT(own, whole);
    together += own;
  }
  EXPECT_GE(together, whole);
  EXPECT_LE(together, whole + kOwners * 2 * 2 * 64 * sizeof(float)) << "padding of two pieces in two arenas";
}

TEST_F(SharedUpdateTest, AnOwnerOfNothingTakesPart) {
  const OptimizerOptions options{.kind = OptimizerKind::adam};
  auto idle = make(options, {{0, 0}});
  const std::vector<float> before = download(idle, "parameters");
  test::forward_backward(idle, batch(0), 1.0 / 32);
  test::finish_step(idle, update_rule(options, 0.05, 0));
  EXPECT_EQ(test::gradient_norm(idle), 0);
  EXPECT_EQ(download(idle, "parameters"), before);
  for (const std::string& group : idle.parameters.state_groups()) idle.parameters.upload_group(group, before);
}

TEST_F(SharedUpdateTest, RefusesWhatCannotBeShared) {
  EXPECT_THROW(make({.kind = OptimizerKind::lars}, owned_by(0)), std::invalid_argument);
  EXPECT_THROW(make({.kind = OptimizerKind::lamb}, owned_by(0)), std::invalid_argument);
  auto owner = make({.kind = OptimizerKind::momentum}, owned_by(1));
  std::vector<float> some(64), all(owner.parameters.elements() - 1);
  EXPECT_THROW(owner.parameters.download_range("velocity", {0, 64}, some), std::invalid_argument) << "is not its own";
  EXPECT_THROW(owner.parameters.upload_group("velocity", all), std::invalid_argument);
  EXPECT_THROW(owner.parameters.download_group("velocity", all), std::invalid_argument);
  EXPECT_THROW(owner.parameters.weight_elements(Weights::average), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::model
