#include "app/train/loss_watch.hpp"

#include <gtest/gtest.h>

namespace lockstep::app {
namespace {

void see(LossWatch& watch, double loss, int steps) {
  for (int i = 0; i < steps; ++i) watch.saw(loss);
}

TEST(LossWatch, NothingLeapsBeforeAWholeWindowOrWhileTheLossFalls) {
  LossWatch watch;
  for (int i = 0; i < LossWatch::kWindow - 1; ++i) {
    watch.saw(i < 10 ? 1 : 1000);
    EXPECT_FALSE(watch.leaps());
  }
  LossWatch falling;
  for (int i = 0; i < 500; ++i) {
    falling.saw(5.0 / (1 + i));
    EXPECT_FALSE(falling.leaps()) << i;
  }
}

TEST(LossWatch, ALeapIsTwiceTheBestWindowWhereverTheLossBegan) {
  LossWatch watch;
  see(watch, 10, 30);
  see(watch, 3, 30);
  EXPECT_DOUBLE_EQ(watch.best(), 3);
  see(watch, 5.9, LossWatch::kWindow);
  EXPECT_FALSE(watch.leaps());
  see(watch, 6.5, LossWatch::kWindow);
  EXPECT_TRUE(watch.leaps());
  EXPECT_NEAR(watch.mean(), 6.5, 1e-12);
}

TEST(LossWatch, OneBadBatchIsNoLeapAndNeitherIsTheNoiseOfASmallLoss) {
  LossWatch watch;
  see(watch, 2, 100);
  watch.saw(20);
  EXPECT_FALSE(watch.leaps());
  LossWatch small;
  see(small, 2, 100);
  see(small, 0.01, 100);
  see(small, 0.1, 100);  // ten times its minimum, and a twentieth of its start
  EXPECT_FALSE(small.leaps());
  see(small, 0.3, 100);
  EXPECT_TRUE(small.leaps());
}

}  // namespace
}  // namespace lockstep::app
