#include "app/evaluate/label_counts.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::app {
namespace {

LabelCounts counts_of(const std::vector<std::vector<float>>& probabilities,
                      const std::vector<std::vector<float>>& targets) {
  LabelCounts counts(3);
  for (std::size_t i = 0; i < targets.size(); ++i) counts.add(probabilities[i], targets[i]);
  return counts;
}

TEST(LabelCounts, FiguresAreThoseOfTheTextbook) {
  // Label 1: true twice, predicted twice, found once. Label 2: true once, never predicted. Label 3: neither.
  const LabelCounts counts =
      counts_of({{0.9f, 0.5f, 0.1f}, {0.6f, 0.2f, 0}, {0.4f, 0, 0.5f}}, {{1, 0, 0}, {0, 1, 0}, {1, 0, 0}});
  EXPECT_EQ(counts.samples(), 3);
  EXPECT_EQ(counts.right(), 1) << "1/2 is not above 1/2";
  const LabelReport report = report_of(counts);
  EXPECT_EQ(report.labels[0].samples, 2);
  EXPECT_EQ(report.labels[0].predicted, 2);
  EXPECT_DOUBLE_EQ(report.labels[0].precision, 0.5);
  EXPECT_DOUBLE_EQ(report.labels[0].f1, 0.5);
  EXPECT_TRUE(std::isnan(report.labels[1].precision));
  EXPECT_EQ(report.labels[1].recall, 0);
  EXPECT_TRUE(std::isnan(report.labels[2].f1));
  EXPECT_DOUBLE_EQ(report.macro.f1, 0.25) << "a label that never is, is in no mean";
  EXPECT_DOUBLE_EQ(report.micro.f1, 2.0 / 5);
  EXPECT_DOUBLE_EQ(report.micro.recall, 1.0 / 3);
}

TEST(LabelCounts, PartsAddUpToTheWhole) {
  LabelCounts a = counts_of({{0.9f, 0, 0}}, {{1, 0, 0}});
  LabelCounts b = counts_of({{0.9f, 0.9f, 0}}, {{0, 1, 1}});
  std::ranges::transform(a.numbers(), b.numbers(), a.numbers().begin(), std::plus());
  EXPECT_EQ(a.samples(), 2);
  EXPECT_EQ(a.right(), 1);
  EXPECT_EQ(report_of(a).micro.samples, 3);
}

TEST(LabelCounts, RefusesWhatIsNoProbability) {
  const std::vector<float> targets(3);
  LabelCounts counts(3);
  EXPECT_THROW(counts.add(std::vector<float>{0, std::numeric_limits<float>::quiet_NaN(), 0}, targets),
               std::invalid_argument);
  EXPECT_THROW(counts.add(std::vector<float>{0, 0}, targets), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::app
