#include "app/evaluate/generate.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>

#include <gtest/gtest.h>

namespace lockstep::app {
namespace {

constexpr std::array<float, 4> kLogits{0.0f, 2.0f, 1.0f, 2.0f};

std::map<std::int32_t, int> count(double temperature, std::int64_t top_k, int draws) {
  std::map<std::int32_t, int> counts;
  for (int i = 0; i < draws; ++i) ++counts[draw_token(kLogits, temperature, top_k, 1, i)];
  return counts;
}

TEST(DrawToken, FrequenciesAreTheSoftmaxOfTheLogitsOverTheTemperature) {
  constexpr int kDraws = 40000;
  for (const double temperature : {1.0, 2.0}) {
    const auto counts = count(temperature, 0, kDraws);
    double total = 0;
    for (const float v : kLogits) total += std::exp(static_cast<double>(v) / temperature);
    for (std::int32_t token = 0; token < 4; ++token) {
      const double p = std::exp(static_cast<double>(kLogits[static_cast<std::size_t>(token)]) / temperature) / total;
      EXPECT_NEAR(counts.at(token), p * kDraws, 5 * std::sqrt(p * (1 - p) * kDraws)) << token << " at " << temperature;
    }
  }
}

TEST(DrawToken, NoTemperatureAndTopOneTakeTheFirstGreatest) {
  EXPECT_EQ(count(0, 0, 50), (std::map<std::int32_t, int>{{1, 50}}));
  EXPECT_EQ(count(1, 1, 50), (std::map<std::int32_t, int>{{1, 50}}));
}

TEST(DrawToken, TopKLeavesTheOthersOut) {
  const auto counts = count(10, 3, 2000);
  EXPECT_EQ(counts.count(0), 0u);
  EXPECT_EQ(counts.size(), 3u);
}

TEST(DrawToken, IsAFunctionOfSeedAndPosition) {
  int differ = 0;
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(draw_token(kLogits, 1, 0, 5, i), draw_token(kLogits, 1, 0, 5, i));
    differ += draw_token(kLogits, 1, 0, 5, i) != draw_token(kLogits, 1, 0, 6, i) ? 1 : 0;
  }
  EXPECT_GT(differ, 50);
}

TEST(DrawToken, RefusesWhatIsNoNumber) {
  const std::array<float, 2> spoilt{0.0f, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_THROW(draw_token(spoilt, 1, 0, 1, 0), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::app
