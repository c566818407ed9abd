#include "model/training/outer_optimizer.hpp"

#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::model {
namespace {

TEST(OuterOptimizer, TheAverageIsTheAnchorLessTheMeanDifference) {
  std::vector<float> anchor{1, 2, 3};
  outer_update({.kind = OuterOptimizerKind::average}, anchor, {}, std::vector<float>{0.5f, 0, -1});
  EXPECT_EQ(anchor, (std::vector<float>{0.5f, 2, 4}));
}

TEST(OuterOptimizer, MomentumGoesOnInTheDirectionOfEarlierRounds) {
  std::vector<float> anchor{1}, velocity{0};
  const OuterOptimizerOptions options{.kind = OuterOptimizerKind::momentum, .rate = 0.5, .momentum = 0.25};
  outer_update(options, anchor, velocity, std::vector<float>{1});
  EXPECT_EQ(velocity, std::vector<float>{1});
  EXPECT_EQ(anchor, std::vector<float>{0.5f});
  outer_update(options, anchor, velocity, std::vector<float>{0});
  EXPECT_EQ(velocity, std::vector<float>{0.25f});
  EXPECT_EQ(anchor, std::vector<float>{0.375f});
}

TEST(OuterOptimizer, SlowMoKeepsItsVelocityInUnitsOfTheInnerRate) {
  std::vector<float> anchor{1}, velocity{0};
  const OuterOptimizerOptions options{.kind = OuterOptimizerKind::slowmo, .rate = 1, .momentum = 0.5};
  outer_update(options, anchor, velocity, std::vector<float>{1}, 0.5);
  EXPECT_EQ(velocity, std::vector<float>{2});
  EXPECT_EQ(anchor, std::vector<float>{0});
  outer_update(options, anchor, velocity, std::vector<float>{0},
               0.25);  // a smaller rate makes a proportionally smaller step
  EXPECT_EQ(velocity, std::vector<float>{1});
  EXPECT_EQ(anchor, std::vector<float>{-0.25f});
  outer_update(options, anchor, velocity, std::vector<float>{0}, 0);
  EXPECT_EQ(anchor, std::vector<float>{-0.25f});
}

TEST(OuterOptimizer, NesterovLooksAheadByItsMomentum) {
  std::vector<float> anchor{1}, velocity{0};
  const OuterOptimizerOptions options{.kind = OuterOptimizerKind::nesterov, .rate = 0.5, .momentum = 0.25};
  outer_update(options, anchor, velocity, std::vector<float>{1});
  EXPECT_EQ(velocity, std::vector<float>{1});
  EXPECT_EQ(anchor, std::vector<float>{1 - 0.5f * (1 + 0.25f)});
}

TEST(OuterOptimizer, DescendsTowardsTheIslands) {
  for (const OuterOptimizerKind kind : {OuterOptimizerKind::average, OuterOptimizerKind::momentum,
                                        OuterOptimizerKind::slowmo, OuterOptimizerKind::nesterov}) {
    std::vector<float> anchor{10}, velocity(kind == OuterOptimizerKind::average ? 0 : 1);
    for (int round = 0; round < 200; ++round) {
      const float difference = 0.3f * (anchor[0] - 2);  // every island moves part of the way to 2
      outer_update({.kind = kind}, anchor, velocity, std::vector<float>{difference});
    }
    EXPECT_NEAR(anchor[0], 2, 1e-3) << name_of(kind);
  }
}

TEST(OuterOptimizer, RefusesOtherLengths) {
  std::vector<float> anchor{1, 2}, velocity{0};
  const std::vector<float> difference{1, 1};
  EXPECT_THROW(outer_update({.kind = OuterOptimizerKind::nesterov}, anchor, velocity, difference),
               std::invalid_argument);
  EXPECT_THROW(outer_update({.kind = OuterOptimizerKind::average}, anchor, velocity, difference),
               std::invalid_argument);
  EXPECT_THROW(outer_update({.kind = OuterOptimizerKind::average}, anchor, {}, velocity), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::model
