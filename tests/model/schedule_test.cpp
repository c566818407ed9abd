#include "model/training/schedule.hpp"

#include <cmath>
#include <stdexcept>

#include <gtest/gtest.h>

namespace lockstep::model {
namespace {

using Kind = ScheduleOptions::Kind;

TEST(Schedule, ConstantWithWarmUp) {
  const LearningRateSchedule plain({.base = 0.5});
  EXPECT_EQ(plain.at(0), 0.5);
  EXPECT_EQ(plain.at(1000000), 0.5);
  const LearningRateSchedule warm({.base = 0.5, .warmup_steps = 5});
  EXPECT_DOUBLE_EQ(warm.at(0), 0.1);
  EXPECT_DOUBLE_EQ(warm.at(3), 0.4);
  EXPECT_DOUBLE_EQ(warm.at(4), 0.5);
  EXPECT_DOUBLE_EQ(warm.at(5), 0.5);
}

TEST(Schedule, Exponential) {
  const LearningRateSchedule smooth({.kind = Kind::exponential, .base = 0.8, .decay_rate = 0.25, .decay_steps = 100});
  EXPECT_DOUBLE_EQ(smooth.at(0), 0.8);
  EXPECT_DOUBLE_EQ(smooth.at(50), 0.4);
  EXPECT_DOUBLE_EQ(smooth.at(100), 0.2);
  const LearningRateSchedule stairs({.kind = Kind::exponential,
                                     .base = 0.8,
                                     .decay_rate = 0.25,
                                     .decay_steps = 100,
                                     .staircase = true,
                                     .warmup_steps = 10});
  EXPECT_DOUBLE_EQ(stairs.at(109), 0.8);
  EXPECT_DOUBLE_EQ(stairs.at(110), 0.2);
  EXPECT_DOUBLE_EQ(stairs.at(210), 0.05);
}

TEST(Schedule, Step) {
  const LearningRateSchedule schedule({.kind = Kind::step, .base = 1, .decay_rate = 0.1, .boundaries = {10, 20}});
  EXPECT_DOUBLE_EQ(schedule.at(9), 1);
  EXPECT_DOUBLE_EQ(schedule.at(10), 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(19), 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(20), 0.01);
}

TEST(Schedule, Cosine) {
  const LearningRateSchedule schedule(
      {.kind = Kind::cosine, .base = 1, .final_rate = 0.2, .warmup_steps = 20, .total_steps = 120});
  EXPECT_DOUBLE_EQ(schedule.at(0), 0.05);
  EXPECT_DOUBLE_EQ(schedule.at(20), 1);
  EXPECT_NEAR(schedule.at(45), 0.2 + 0.8 * (1 + std::sqrt(0.5)) / 2, 1e-12);
  EXPECT_NEAR(schedule.at(70), 0.6, 1e-12);
  EXPECT_NEAR(schedule.at(120), 0.2, 1e-12);
  EXPECT_NEAR(schedule.at(100000), 0.2, 1e-12);
}

TEST(Schedule, Polynomial) {
  const LearningRateSchedule schedule(
      {.kind = Kind::polynomial, .base = 1, .final_rate = 0.1, .power = 2, .total_steps = 100});
  EXPECT_DOUBLE_EQ(schedule.at(0), 1);
  EXPECT_DOUBLE_EQ(schedule.at(50), 0.1 + 0.9 * 0.25);
  EXPECT_DOUBLE_EQ(schedule.at(100), 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(101), 0.1);
}

TEST(Schedule, ScaledMultipliesEveryRate) {
  const LearningRateSchedule schedule(
      {.kind = Kind::cosine, .base = 1, .final_rate = 0.1, .warmup_steps = 10, .total_steps = 100});
  const LearningRateSchedule half = schedule.scaled(0.5);
  for (const std::int64_t step : {0, 9, 10, 50, 100, 200}) EXPECT_DOUBLE_EQ(half.at(step), schedule.at(step) / 2);
}

TEST(Schedule, RefusesContradictions) {
  const auto make = [](ScheduleOptions options) { return LearningRateSchedule(std::move(options)); };
  EXPECT_THROW(make({.base = -0.1}), std::invalid_argument);
  EXPECT_THROW(make({.base = std::nan("")}), std::invalid_argument);
  EXPECT_THROW(make({.warmup_steps = -1}), std::invalid_argument);
  EXPECT_THROW(make({.kind = Kind::exponential, .decay_steps = 0}), std::invalid_argument);
  EXPECT_THROW(make({.kind = Kind::exponential, .decay_rate = 0}), std::invalid_argument);
  EXPECT_THROW(make({.kind = Kind::step}), std::invalid_argument);
  EXPECT_THROW(make({.kind = Kind::step, .boundaries = {20, 10}}), std::invalid_argument);
  EXPECT_THROW(make({.kind = Kind::step, .boundaries = {10, 10}}), std::invalid_argument);
  EXPECT_THROW(make({.kind = Kind::cosine}), std::invalid_argument);
  EXPECT_THROW(make({.kind = Kind::cosine, .warmup_steps = 100, .total_steps = 100}), std::invalid_argument);
  EXPECT_THROW(make({.kind = Kind::polynomial, .power = 0, .total_steps = 100}), std::invalid_argument);
}

TEST(Schedule, AClockTakesLargerStepsFurther) {
  const ScheduleOptions options{.kind = Kind::cosine, .base = 0.8, .warmup_steps = 10, .total_steps = 100};
  const LearningRateSchedule whole(options);
  ScheduleOptions changed = options;
  changed.clock = {.step = 40, .at = 40, .per_step = 2};
  const LearningRateSchedule larger(changed);
  EXPECT_EQ(larger.at(40), whole.at(40));
  EXPECT_EQ(larger.at(55), whole.at(70));
  EXPECT_EQ(larger.at(70), whole.at(100));
  changed.clock = {.step = 4, .at = 4, .per_step = 0.5};
  const LearningRateSchedule smaller(changed);
  EXPECT_EQ(smaller.at(4), whole.at(4));
  EXPECT_EQ(smaller.at(6), whole.at(5));
  EXPECT_LE(smaller.at(15), 0.8) << "no more than the rate, in the last step of the warm-up either";
  EXPECT_EQ(smaller.at(16), 0.8);
  changed.kind = Kind::step, changed.boundaries = {20}, changed.decay_rate = 0.5;
  const LearningRateSchedule steps(changed);
  EXPECT_EQ(steps.at(35), 0.8);
  EXPECT_EQ(steps.at(36), 0.4);
}

TEST(Schedule, Names) {
  for (const char* name : {"constant", "exponential", "step", "cosine", "polynomial"}) {
    EXPECT_EQ(name_of(parse_schedule(name)), name);
  }
  EXPECT_THROW(parse_schedule("linear"), std::invalid_argument);
}

TEST(ScaleRate, IsProportionalToTheBatch) {
  EXPECT_DOUBLE_EQ(scale_rate(0.1, 1024, 256), 0.4);
  EXPECT_DOUBLE_EQ(scale_rate(0.1, 32, 128), 0.025);
  EXPECT_THROW(scale_rate(0.1, 0, 256), std::invalid_argument);
  EXPECT_THROW(scale_rate(0.1, 256, 0), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::model
