#include "app/evaluate/class_counts.hpp"

#include <cmath>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::app {
namespace {

void add(ClassCounts& counts, std::vector<float> probabilities, std::int32_t target) {
  counts.add(probabilities, target);
}

/// Six samples of three out of four classes: the last class has neither samples nor answers.
ClassCounts six() {
  ClassCounts counts(4);
  add(counts, {0.75f, 0.25f, 0, 0}, 0);
  add(counts, {0.75f, 0.25f, 0, 0}, 0);
  add(counts, {0.25f, 0.75f, 0, 0}, 0);
  add(counts, {0, 1, 0, 0}, 1);
  add(counts, {0.5f, 0.5f, 0, 0}, 1);  // a tie: the first class counts
  add(counts, {0, 1, 0, 0}, 2);
  return counts;
}

TEST(ClassCounts, FiguresOfAClassAreThoseOfTheTextbook) {
  const ClassReport report = report_of(six());
  EXPECT_EQ(report.samples, 6);
  EXPECT_EQ(report.right, 3);
  EXPECT_EQ(report.classes[0].samples, 3);
  EXPECT_EQ(report.classes[0].predicted, 3);
  EXPECT_DOUBLE_EQ(report.classes[0].precision, 2.0 / 3);
  EXPECT_DOUBLE_EQ(report.classes[0].recall, 2.0 / 3);
  EXPECT_DOUBLE_EQ(report.classes[0].f1, 2.0 / 3);
  EXPECT_DOUBLE_EQ(report.classes[1].precision, 1.0 / 3);
  EXPECT_DOUBLE_EQ(report.classes[1].recall, 1.0 / 2);
  EXPECT_DOUBLE_EQ(report.classes[1].f1, 2.0 / 5);
}

TEST(ClassCounts, WhatIsZeroByZeroIsNotANumberAndCountsAsZeroInMeans) {
  const ClassReport report = report_of(six());
  EXPECT_TRUE(std::isnan(report.classes[2].precision));  // never predicted
  EXPECT_EQ(report.classes[2].recall, 0);
  EXPECT_EQ(report.classes[2].f1, 0);
  EXPECT_TRUE(std::isnan(report.classes[3].f1));
  EXPECT_DOUBLE_EQ(report.macro.precision, (2.0 / 3 + 1.0 / 3 + 0) / 3);  // the fourth enters no mean
  EXPECT_DOUBLE_EQ(report.macro.recall, (2.0 / 3 + 1.0 / 2) / 3);
  EXPECT_DOUBLE_EQ(report.weighted.recall, 0.5);  // the accuracy
  EXPECT_DOUBLE_EQ(report.weighted.f1, (3 * 2.0 / 3 + 2 * 2.0 / 5) / 6);
}

TEST(ClassCounts, ConfusionsComeWithTheMostFrequentFirst) {
  ClassCounts counts = six();
  add(counts, {0, 1, 0, 0}, 2);
  const ClassReport report = report_of(counts);
  ASSERT_EQ(report.confusions.size(), 3u);
  EXPECT_EQ(report.confusions[0].target, 2);
  EXPECT_EQ(report.confusions[0].predicted, 1);
  EXPECT_EQ(report.confusions[0].samples, 2);
  EXPECT_EQ(counts.confused(0, 1), 1);
  EXPECT_EQ(counts.confused(1, 0), 1);
}

TEST(ClassCounts, CalibrationIsTheMeanDistanceOfAccuracyAndConfidence) {
  const ClassReport report = report_of(six());
  // Confidences 0.75 (two of three right), 1 (one of two), 0.5 (none of one).
  EXPECT_DOUBLE_EQ(report.calibration_error, (3 * (0.75 - 2.0 / 3) + 2 * 0.5 + 0.5) / 6);
  EXPECT_DOUBLE_EQ(report.greatest_calibration_error, 0.5);
  EXPECT_DOUBLE_EQ(report.confidence, (3 * 0.75 + 2 + 0.5) / 6);
}

TEST(ClassCounts, ABinHoldsItsUpperEdge) {
  ClassCounts counts(2);
  add(counts, {1, 0}, 0);
  add(counts, {0.6f, 0.4f}, 1);
  EXPECT_EQ(counts.bin(ClassCounts::kBins - 1).samples, 1);
  EXPECT_EQ(counts.bin(8).samples + counts.bin(9).samples, 1);  // 9 / 15 in float32 may fall on either side
  EXPECT_EQ(counts.bin(0).samples, 0);
  EXPECT_EQ(counts.bin(0).accuracy(), 0);
}

TEST(ClassCounts, SumsOverRanksAreThoseOfAllSamples) {
  ClassCounts whole = six(), part = six();
  add(whole, {0.3f, 0.7f, 0, 0}, 3);
  ClassCounts other(4);
  add(other, {0.3f, 0.7f, 0, 0}, 3);
  for (std::size_t i = 0; i < part.numbers().size(); ++i) part.numbers()[i] += other.numbers()[i];
  EXPECT_TRUE(std::ranges::equal(part.numbers(), whole.numbers()));
}

TEST(ClassCounts, RefusesSamplesOfNoClass) {
  ClassCounts counts(3);
  EXPECT_THROW(add(counts, {1, 0, 0}, 3), std::invalid_argument);
  EXPECT_THROW(add(counts, {1, 0, 0}, -1), std::invalid_argument);
  EXPECT_THROW(add(counts, {1, 0}, 0), std::invalid_argument);
  EXPECT_THROW(add(counts, {NAN, NAN, NAN}, 0), std::invalid_argument);
  EXPECT_EQ(report_of(counts).samples, 0);
}

}  // namespace
}  // namespace lockstep::app
