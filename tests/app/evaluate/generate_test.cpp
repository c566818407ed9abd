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
  for (int i = 0; i < draws; ++i) ++counts[draw_token(kLogits, {.temperature = temperature, .top_k = top_k}, i)];
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
    EXPECT_EQ(draw_token(kLogits, {.seed = 5}, i), draw_token(kLogits, {.seed = 5}, i));
    differ += draw_token(kLogits, {.seed = 5}, i) != draw_token(kLogits, {.seed = 6}, i) ? 1 : 0;
  }
  EXPECT_GT(differ, 50);
}

TEST(DrawToken, TopPTakesTheFewestThatHaveTheProbability) {
  // 0.41 each of tokens 1 and 3, 0.15 of 2, 0.055 of 0.
  const auto drawn = [](double top_p) {
    std::map<std::int32_t, int> counts;
    for (int i = 0; i < 2000; ++i) ++counts[draw_token(kLogits, {.top_p = top_p}, i)];
    return counts;
  };
  EXPECT_EQ(drawn(0.3).size(), 1u);
  EXPECT_EQ(drawn(0.5).size(), 2u);
  EXPECT_EQ(drawn(0.9).size(), 3u);
  EXPECT_EQ(drawn(1).size(), 4u);
}

TEST(DrawToken, SamplesDiffer) {
  int differ = 0;
  for (int i = 0; i < 200; ++i) {
    differ += draw_token(kLogits, {.sample = 1}, i) != draw_token(kLogits, {.sample = 2}, i) ? 1 : 0;
  }
  EXPECT_GT(differ, 50);
}

TEST(StoppedText, EndsBeforeTheStopTextHoweverItsPartsCome) {
  const std::string text = "to be END or", stop = "END";
  for (std::size_t step = 1; step <= text.size(); ++step) {
    StoppedText written(stop);
    std::string all;
    for (std::size_t i = 0; i < text.size(); i += step) all += written.add(text.substr(i, step));
    EXPECT_TRUE(written.has_ended());
    EXPECT_EQ(all + written.rest(), "to be ") << step;
  }
}

TEST(StoppedText, WhatOnlyBeginsAsTheStopTextIsWritten) {
  StoppedText written("aab");
  EXPECT_EQ(written.add("xaa"), "x");
  EXPECT_EQ(written.add("ac"), "aaac");
  EXPECT_EQ(written.add("a"), "");
  EXPECT_EQ(written.rest(), "a");
  StoppedText never("");
  EXPECT_EQ(never.add("aab"), "aab");
}

TEST(DrawToken, RefusesWhatIsNoNumber) {
  const std::array<float, 2> spoilt{0.0f, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_THROW(draw_token(spoilt, {}, 0), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::app
