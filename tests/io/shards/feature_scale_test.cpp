/// Scaling of numbers to mean 0 and deviation 1.
#include "io/shards/feature_scale.hpp"

#include <gtest/gtest.h>

namespace lockstep::io {
namespace {

using Spreads = std::vector<FeatureSpread>;

TEST(FeatureScaleTest, FeaturesTakeTurnsAndComeBack) {
  const FeatureScale scale = scale_of(Spreads{{.mean = 100, .deviation = 50}, {.mean = -1, .deviation = 0.5}});
  std::vector<float> numbers{150, -1, 0, 0};
  scale.apply(numbers);
  EXPECT_EQ(numbers, (std::vector<float>{1, 0, -2, 2}));
  scale.undo(numbers);
  EXPECT_EQ(numbers, (std::vector<float>{150, -1, 0, 0}));
  FeatureScale{}.apply(numbers);
  EXPECT_EQ(numbers, (std::vector<float>{150, -1, 0, 0}));
}

TEST(FeatureScaleTest, AFeatureThatNeverChangesIsOnlyMoved) {
  const FeatureScale scale = scale_of(Spreads{{.mean = 7, .deviation = 0}, {.mean = 1e6, .deviation = 1e-3}});
  EXPECT_EQ(scale.deviation, (std::vector<double>{1, 1}));
}

TEST(FeatureScaleTest, NumbersThatFloat32DoesNotTellApart) {
  constexpr double kMean = 1'700'000'030;
  const Spreads times{{.mean = kMean, .deviation = 17}};
  EXPECT_EQ(scale_of(times).deviation, std::vector<double>{1}) << "rounding alone makes such a deviation of floats";
  const FeatureScale scale = scale_of(times, FileType::float64);
  EXPECT_EQ(scale.mean, std::vector<double>{kMean});
  EXPECT_TRUE(scale.needs_double());
  std::vector<float> out(3);
  scale.apply(std::vector<double>{kMean - 17, kMean, kMean + 1}, out);
  EXPECT_EQ(out, (std::vector<float>{-1, 0, 1.0F / 17}));
  EXPECT_FALSE(scale_of(Spreads{{.mean = 2000, .deviation = 5}}, FileType::float64).needs_double());
  EXPECT_FALSE(scale_of(times).needs_double()) << "a mean of floats is one";
}

TEST(FeatureScaleTest, OnlyAnUnusualSpreadAsksForIt) {
  EXPECT_FALSE(asks_for_scale(Spreads{{.mean = 1, .deviation = 0.6}, {.mean = 0, .deviation = 0}}));
  EXPECT_TRUE(asks_for_scale(Spreads{{.mean = 0, .deviation = 1}, {.mean = 9203, .deviation = 1}}));
  EXPECT_TRUE(asks_for_scale(Spreads{{.mean = 0, .deviation = 0.0476}}));
  EXPECT_TRUE(asks_for_scale(Spreads{{.mean = 0, .deviation = 20}}));
  // Targets about 2 are far from a network's first predictions, which are near 0.
  EXPECT_TRUE(ask_for_scale_as_targets(Spreads{{.mean = 2, .deviation = 0.6}}));
  EXPECT_TRUE(ask_for_scale_as_targets(Spreads{{.mean = 0.1, .deviation = 1}, {.mean = 0, .deviation = 3}}));
  EXPECT_FALSE(ask_for_scale_as_targets(Spreads{{.mean = -0.4, .deviation = 1}, {.mean = 0, .deviation = 0}}));
  EXPECT_TRUE(ask_for_scale_as_targets(Spreads{{.mean = 2, .deviation = 0}}));
}

}  // namespace
}  // namespace lockstep::io
