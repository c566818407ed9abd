#include "app/engine/step_status.hpp"

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::app {
namespace {

/// A rank's outgoing status, with the loss that the backend has added.
model::StepStatus with_loss(const RankStatus& own, double loss, double metric) {
  model::StepStatus numbers = to_numbers(own);
  numbers.loss += loss;
  numbers.metric += metric;
  if (!std::isfinite(loss)) numbers.non_finite += 1;
  return numbers;
}

/// The all-reduce.
model::StepStatus sum(const std::vector<model::StepStatus>& ranks) {
  model::StepStatus total;
  for (const model::StepStatus& rank : ranks) {
    for (double model::StepStatus::*number :
         {&model::StepStatus::loss, &model::StepStatus::metric, &model::StepStatus::non_finite,
          &model::StepStatus::samples, &model::StepStatus::failed, &model::StepStatus::stop_requests,
          &model::StepStatus::save_requests, &model::StepStatus::save_due, &model::StepStatus::schedule_low,
          &model::StepStatus::schedule_low2, &model::StepStatus::schedule_high, &model::StepStatus::schedule_high2}) {
      total.*number += rank.*number;
    }
  }
  return total;
}

/// The conclusion of every rank of `size` about the step.
std::vector<StepOutcome> outcomes(
    int size, const std::function<RankStatus(int)>& status_of,
    const std::function<double(int)>& loss = [](int) { return 0.0; },
    const std::function<double(int)>& metric = [](int) { return 0.0; }) {
  std::vector<model::StepStatus> numbers;
  for (int rank = 0; rank < size; ++rank) numbers.push_back(with_loss(status_of(rank), loss(rank), metric(rank)));
  const model::StepStatus sums = sum(numbers);
  std::vector<StepOutcome> result;
  for (int rank = 0; rank < size; ++rank) result.push_back(outcome_of(sums, status_of(rank), size));
  return result;
}

class StepStatusTest : public testing::TestWithParam<int> {
 protected:
  int size() const { return GetParam(); }
};

TEST_P(StepStatusTest, SumsWhatRanksSay) {
  const auto status = [](int rank) {
    return RankStatus{.samples = 100,
                      .failed = rank == 0,
                      .stop_requested = rank % 2 == 1,
                      .save_requested = rank == 0,
                      .save_due = rank == 1,
                      .schedule_tag = 0xdeadbeef};
  };
  for (const StepOutcome& outcome : outcomes(
           size(), status, [](int rank) { return 0.5 * rank; }, [](int rank) { return 10.0 + rank; })) {
    EXPECT_EQ(outcome.loss_sum, 0.25 * size() * (size() - 1));
    EXPECT_EQ(outcome.metric_sum, 10.0 * size() + size() * (size() - 1) / 2);
    EXPECT_EQ(outcome.samples, 100.0 * size());
    EXPECT_EQ(outcome.failed_ranks, 1);
    EXPECT_EQ(outcome.not_finite_ranks, 0);
    EXPECT_EQ(outcome.stop_requests, size() / 2);
    EXPECT_EQ(outcome.save_requests, 1);
    EXPECT_EQ(outcome.save_due, size() > 1);
    EXPECT_FALSE(outcome.diverged);
  }
}

TEST(StepStatus, AFailedRankHasNoFiniteLoss) {
  EXPECT_EQ(to_numbers({.failed = true}).non_finite, 1);
  EXPECT_EQ(to_numbers({.samples = 7, .stop_requested = true}).non_finite, 0);
}

TEST_P(StepStatusTest, ALossThatIsNotANumberSpoilsNothingElse) {
  const auto not_a_number = [](int) { return std::numeric_limits<double>::quiet_NaN(); };
  const auto infinity = [](int) { return std::numeric_limits<double>::infinity(); };
  for (const StepOutcome& outcome : outcomes(
           size(), [](int) { return RankStatus{.samples = 3}; }, not_a_number, infinity)) {
    EXPECT_TRUE(std::isnan(outcome.loss_sum));
    EXPECT_TRUE(std::isinf(outcome.metric_sum));
    EXPECT_EQ(outcome.samples, 3.0 * size());
    EXPECT_EQ(outcome.failed_ranks, 0);
    EXPECT_EQ(outcome.not_finite_ranks, size());
    EXPECT_FALSE(outcome.diverged);
  }
}

TEST_P(StepStatusTest, EveryRankSeesThatOneTagDiffers) {
  const auto diverged = [&](const std::function<std::uint32_t(int)>& tag) {
    int count = 0;
    for (const StepOutcome& outcome : outcomes(size(), [&](int rank) { return RankStatus{.schedule_tag = tag(rank)}; }))
      count += outcome.diverged ? 1 : 0;
    return count;
  };
  for (const std::uint32_t same : {0u, 1u, 0xffffffffu}) EXPECT_EQ(diverged([&](int) { return same; }), 0);
  if (size() == 1) return;
  const std::uint32_t tag = 0x80007fff;
  for (const std::uint32_t other : {tag ^ 1u, tag ^ 0x80000000u, tag + 0x10000u, ~tag, 0u, 0xffffffffu}) {
    for (int culprit = 0; culprit < size(); ++culprit) {
      EXPECT_EQ(diverged([&](int rank) { return rank == culprit ? other : tag; }), size());
    }
  }
  // 4 + 6 = 5 + 5: only the squares tell.
  EXPECT_EQ(diverged([](int rank) { return rank == 0 ? 4u : rank == 1 ? 6u : 5u; }), size());
}

INSTANTIATE_TEST_SUITE_P(Ranks, StepStatusTest, testing::Values(1, 2, 3, 4, 5));

}  // namespace
}  // namespace lockstep::app
