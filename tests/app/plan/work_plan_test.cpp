/// The amount of work of a job, and the figures that describe it.
#include "app/plan/work_plan.hpp"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/plan/plan.hpp"
#include "app/report/figures.hpp"
#include "support/message_of.hpp"

namespace lockstep::app {
namespace {

using testing::HasSubstr;

WorkOptions options_with(std::int64_t batch, std::int64_t accumulate) {
  return {.batch = batch, .accumulate = accumulate, .epochs = 1};
}

/// The work of a job whose user gives --batch, with validations and checkpoints after each epoch.
WorkPlan work_with_batch(const WorkOptions& options, std::int64_t samples, int world) {
  WorkPlan work = work_plan(options, {.samples = samples, .world = world, .has_batch = true});
  add_intervals({}, {}, work);
  return work;
}

TEST(WorkPlanTest, TheGlobalBatchIsWhatAllRanksTakeInAllMicroSteps) {
  const WorkPlan work = work_with_batch(options_with(25, 2), 1000, 4);
  EXPECT_EQ(work.global_batch, 200);
  EXPECT_EQ(work.largest_part, 25);
  EXPECT_EQ(work.steps_per_epoch, 5);
  EXPECT_EQ(work.total_steps, 5);
  EXPECT_EQ(work.evaluate_every.steps, 5);
}

TEST(WorkPlanTest, NoBatchIsLargerThanTheData) {
  for (const std::int64_t batch : {1000L, 1001L, std::numeric_limits<long>::max()}) {
    const WorkPlan work = work_with_batch(options_with(batch, 1000000), 1000, 8);
    EXPECT_EQ(work.global_batch, 1000) << batch;
    EXPECT_EQ(work.largest_part, 1);
    EXPECT_EQ(work.steps_per_epoch, 1);
  }
  WorkOptions options;
  options.global_batch = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(work_with_batch(options, 7, 3).global_batch, 7);
  EXPECT_EQ(work_with_batch(options, 7, 3).largest_part, 3);
}

TEST(WorkPlanTest, TheGlobalBatchStaysAsGivenOnMoreRanks) {
  WorkOptions options;
  options.global_batch = 2;
  options.accumulate = 2;
  const WorkPlan work = work_with_batch(options, 100, 3);
  EXPECT_EQ(work.global_batch, 2);
  EXPECT_EQ(work.largest_part, 1);
  EXPECT_EQ(work.steps_per_epoch, 50);
}

TEST(WorkPlanTest, EpochsMayBeFractionsAndEndWithWholeSteps) {
  WorkOptions options = options_with(10, 1);
  for (const auto& [epochs, steps] : {std::pair{0.3, 3}, {0.01, 1}, {1e-9, 1}, {2.0, 20}, {2.05, 21}}) {
    options.epochs = epochs;
    EXPECT_EQ(work_with_batch(options, 100, 1).total_steps, steps) << epochs;
  }
  options.epochs = 1e30;
  EXPECT_THAT(test::message_of<UsageError>([&] { work_with_batch(options, 100, 1); }), HasSubstr("--epochs 1e+30"));
  options.steps = 5;
  EXPECT_EQ(work_with_batch(options, 100, 1).total_steps, 5);
}

TEST(WorkPlanTest, SmallDataMakeSmallerStepsAndMoreEpochsWhereNobodySaysOtherwise) {
  const WorkPlan small = work_plan({}, {.samples = 400, .world = 2});
  EXPECT_EQ(small.global_batch, 25);
  EXPECT_EQ(small.epochs, 63);
  EXPECT_EQ(small.total_steps, 63 * 16);
  EXPECT_EQ(work_plan({}, {.samples = 90, .world = 1}).global_batch, 16);
  EXPECT_EQ(work_plan({}, {.samples = 90, .world = 1}).epochs, 100);
  const WorkPlan large = work_plan({}, {.samples = 1'000'000, .world = 4});
  EXPECT_EQ(large.global_batch, 512);
  EXPECT_EQ(large.epochs, 1);
  const WorkPlan text = work_plan({}, {.samples = 400, .world = 1, .reads_tokens = true});
  EXPECT_EQ(text.epochs, 1);
  EXPECT_EQ(text.global_batch, 128);
}

TEST(WorkPlanTest, EpochsCountTheSamplesOfEveryGlobalBatch) {
  WorkOptions options = options_with(10, 1);
  options.epochs = 8;
  WorkPlan work = work_with_batch(options, 100, 2);  // 5 steps per epoch
  go_on_at(work, 20, {.epoch = 4, .position = 0});
  EXPECT_EQ(work.total_steps, 40) << "none of another";
  EXPECT_EQ(work.epoch_shift, 0);
  go_on_at(work, 40, {.epoch = 4, .position = 0});  // each with half as many samples
  EXPECT_EQ(work.total_steps, 60);
  EXPECT_EQ(work.epochs_after(40), 4);
  EXPECT_EQ(work.epochs_after(60), 8);
  EXPECT_TRUE(work.evaluate_every.lies_between(44, 45));
  EXPECT_FALSE(work.evaluate_every.lies_between(45, 49));
  EXPECT_EQ(work.evaluate_every.next(40), 45);
  go_on_at(work, 43, {.epoch = 4, .position = 30});  // 20 + 20 + 20 + 10 samples are left of the epoch
  EXPECT_EQ(work.total_steps, 43 + 4 + 15);
  EXPECT_EQ(work.evaluate_every.next(43), 47);
  work.epochs = 4.5;
  go_on_at(work, 43, {.epoch = 4, .position = 30});
  EXPECT_EQ(work.total_steps, 45);
  work.given_steps = 50;
  go_on_at(work, 43, {.epoch = 4, .position = 30});
  EXPECT_EQ(work.total_steps, 50) << "steps are steps";
}

TEST(WorkPlanTest, TheUsualVirtualRanksDependOnTheGlobalBatchAlone) {
  WorkOptions options;
  options.reproducible = true;
  for (const auto& [batch, parts] :
       {std::pair<std::int64_t, std::int64_t>{1000, 24}, {24, 24}, {23, 12}, {10, 6}, {1, 1}}) {
    options.global_batch = batch;
    for (const int world : {1, 2, 8, 16, 24}) {
      if (world <= parts) {
        EXPECT_EQ(work_with_batch(options, 100000, world).virtual_ranks, parts) << world;
      } else {
        EXPECT_THROW(work_with_batch(options, 100000, world), UsageError) << world;
      }
    }
  }
  options.global_batch = 4;
  EXPECT_EQ(work_with_batch(options, 100000, 3).global_batch, 4);
  options.global_batch = 1000;
  EXPECT_THROW(work_with_batch(options, 100000, 25), UsageError);
  options.virtual_ranks = 48;
  EXPECT_EQ(work_with_batch(options, 100000, 25).virtual_ranks, 48);
}

TEST(WorkPlanTest, TheScalingRuleUsesTheGlobalBatch) {
  TrainOptions options;
  options.work = options_with(32, 2);
  options.schedule.base = 0.1;
  options.work.reference_batch = 128;
  EXPECT_DOUBLE_EQ(learning_rate_schedule(options, work_with_batch(options.work, 10000, 4)).at(0), 0.2);
}

TEST(FiguresTest, OneIsNotMany) {
  EXPECT_EQ(counted(1, "rank"), "1 rank");
  EXPECT_EQ(counted(0, "rank"), "0 ranks");
  EXPECT_EQ(counted(12345, "sample"), "12,345 samples");
}

}  // namespace
}  // namespace lockstep::app
