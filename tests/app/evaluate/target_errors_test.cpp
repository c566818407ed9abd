#include "app/evaluate/target_errors.hpp"

#include <array>
#include <cmath>
#include <utility>

#include <gtest/gtest.h>

namespace lockstep::app {
namespace {

using Sample = std::pair<double, double>;  ///< prediction, target
constexpr std::array<Sample, 4> kSamples{{{2, 1}, {2, 2}, {1, 3}, {6, 6}}};

TargetErrors errors_of(std::size_t first, std::size_t end) {
  TargetErrors errors;
  for (std::size_t i = first; i < end; ++i) errors.add(kSamples[i].first, kSamples[i].second);
  return errors;
}

void expect_all_four(const TargetErrors& errors) {
  EXPECT_EQ(errors.samples, 4);
  EXPECT_DOUBLE_EQ(errors.mean_absolute_error(), 3.0 / 4);
  EXPECT_DOUBLE_EQ(errors.root_mean_squared_error(), std::sqrt(5.0 / 4));
  EXPECT_DOUBLE_EQ(errors.r_squared(), 1 - 5.0 / 14);  // the targets' mean is 3
}

TEST(TargetErrors, FiguresAreThoseOfTheTextbook) { expect_all_four(errors_of(0, 4)); }

TEST(TargetErrors, PartsAddUpToTheWhole) {
  for (std::size_t cut = 0; cut <= 4; ++cut) {
    TargetErrors errors = errors_of(0, cut);
    errors.add(errors_of(cut, 4));
    expect_all_four(errors);
  }
}

TEST(TargetErrors, LargeTargetsKeepTheirSpread) {
  TargetErrors errors;
  for (const auto& [prediction, target] : kSamples) errors.add(prediction + 1e8, target + 1e8);
  EXPECT_NEAR(errors.r_squared(), 1 - 5.0 / 14, 1e-7);
}

TEST(TargetErrors, EqualTargetsHaveNoRSquared) {
  TargetErrors errors;
  errors.add(1, 2);
  errors.add(3, 2);
  EXPECT_TRUE(std::isnan(errors.r_squared()));
}

}  // namespace
}  // namespace lockstep::app
