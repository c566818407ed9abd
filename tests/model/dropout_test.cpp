// Random draws per sample: keys, and dropout.
#include "model/formulas/dropout.hpp"

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "model/reference/reference_sequences.hpp"
#include "sample_data.hpp"

namespace lockstep::model {
namespace {

using test::samples;
using test::view;

TEST(SampleKey, DiffersBySeedEpochAndSample) {
  std::set<std::uint64_t> keys;
  for (const std::uint64_t seed : {0, 1, 2}) {
    for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
      for (std::int64_t sample = 0; sample < 200; ++sample) keys.insert(sample_key(seed, epoch, sample));
    }
  }
  EXPECT_EQ(keys.size(), 3u * 20 * 200);
  EXPECT_EQ(sample_key(5, 6, 7), sample_key(5, 6, 7));
}

/// A run that another version resumes must draw the same as this version.
TEST(SampleKey, StaysWhatItIs) {
  EXPECT_EQ(sample_key(0, 0, 0), 0x238275bc38fcbe91u);
  EXPECT_EQ(sample_key(1, 2, 3), 0x6ae515c1c0ac7e37u);
  EXPECT_EQ(sample_key(0xFFFFFFFFFFFFFFFF, 1'000'000, 1'000'000'000'000), 0xad513384f89e4242u);
}

TEST(Philox, WordsAndArraysAreOne) {
  // Known answer of the paper's library, for these digits of pi.
  const PhiloxWords words = philox_words(0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0);
  EXPECT_EQ(words.word[0], 0xd16cfe09);
  EXPECT_EQ(words.word[1], 0x94fdcceb);
  EXPECT_EQ(words.word[2], 0x5001e420);
  EXPECT_EQ(words.word[3], 0x24126ea1);
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

/// The factors of a batch of ones.
std::vector<double> factors(std::vector<std::uint64_t> keys, std::int64_t positions, std::int64_t columns,
                            const Dropout& rule) {
  ReferenceSequences sequences;
  const auto samples = static_cast<std::int64_t>(keys.size());
  std::vector<double> x(static_cast<std::size_t>(samples * positions * columns), 1.0);
  const Tensor ones = view(x, samples * positions, columns);
  sequences.dropout(ones, view(keys, samples, 1), rule, ones);
  return x;
}

TEST(Dropout, KeepsTheShareThatItSays) {
  for (const float rate : {0.1f, 0.2f, 0.5f, 0.9f}) {
    const std::int64_t samples = 50, columns = 400;
    double kept = 0, sum = 0;
    for (const double factor : factors(test::sample_keys(samples), 1, columns, {.rate = rate, .stream = 20})) {
      EXPECT_TRUE(factor == 0 || factor == static_cast<double>(1 / (1 - rate)));
      kept += factor != 0;
      sum += factor;
    }
    const double count = static_cast<double>(samples * columns), expected = 1 - static_cast<double>(rate);
    EXPECT_NEAR(kept / count, expected, 4 * std::sqrt(expected * (1 - expected) / count)) << rate;
    EXPECT_NEAR(sum / count, 1, 0.1) << rate;
  }
}

/// Dropout uses the words that randomness.hpp specifies, for one element, for groups, and for odd numbers of columns.
TEST(Dropout, TakesWordsByElementOfTheSample) {
  const Dropout rule{.rate = 0.3f, .stream = 23};
  const formulas::DropoutNumbers numbers = formulas::dropout_numbers(rule);
  const auto keys = test::sample_keys(3);
  const std::int64_t positions = 4, columns = 7;
  const auto got = factors(keys, positions, columns, rule);
  for (std::size_t s = 0; s < keys.size(); ++s) {
    for (std::uint32_t i = 0; i < 28; ++i) {
      const PhiloxCounter words = philox4x32(
          {i / 4, 0, 23, 0}, {static_cast<std::uint32_t>(keys[s]), static_cast<std::uint32_t>(keys[s] >> 32)});
      const bool kept = words[i % 4] >= std::llround(static_cast<double>(0.3f) * 0x1p32);
      EXPECT_EQ(got[s * 28 + i] != 0, kept) << i;
      EXPECT_EQ(formulas::dropout_element(numbers, keys[s], i) != 0, kept) << i;
      EXPECT_EQ(formulas::dropout_group(numbers, keys[s], i / 4).factor[i % 4] != 0, kept) << i;
    }
  }
  // Elements beyond 2^34 use the second word of the counter.
  const PhiloxCounter far = philox4x32({1, 2, 23, 0}, {9, 0});
  const PhiloxWords same = formulas::dropout_words(numbers, 9, std::uint64_t{2} << 32 | 1);
  for (std::size_t w = 0; w < 4; ++w) EXPECT_EQ(same.word[w], far[w]);
}

TEST(Dropout, ThresholdsAreExactAtTheEnds) {
  EXPECT_EQ(formulas::dropout_numbers({.rate = 0}).threshold, 0u);
  EXPECT_EQ(formulas::dropout_numbers({.rate = 0.5f}).threshold, 0x80000000u);
  EXPECT_EQ(formulas::dropout_numbers({.rate = std::nextafter(1.0f, 0.0f)}).threshold, 0xFFFFFF00u);
  const formulas::DropoutNumbers half = formulas::dropout_numbers({.rate = 0.5f});
  EXPECT_EQ(formulas::dropout_factor(half, 0x7FFFFFFF), 0.0f);
  EXPECT_EQ(formulas::dropout_factor(half, 0x80000000), 2.0f);
}

/// The same elements of a sample are dropped in every batch, and others for another sample or stream.
TEST(Dropout, DependsOnTheSampleAlone) {
  const Dropout rule{.rate = 0.5f, .stream = 16};
  const auto whole = factors(test::sample_keys(8), 3, 5, rule);
  const auto part = factors(test::sample_keys(3, 5), 3, 5, rule);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 5 * 15));
  EXPECT_FALSE(std::equal(part.begin(), part.end(), whole.begin()));
  EXPECT_NE(factors(test::sample_keys(8), 3, 5, {.rate = 0.5f, .stream = 17}), whole);
}

TEST(Dropout, IsTheSameInBothOrders) {
  const std::int64_t samples = 5, positions = 3, columns = 6;
  const auto by_sample = factors(test::sample_keys(samples), positions, columns, {.rate = 0.4f, .stream = 16});
  const auto by_time = factors(test::sample_keys(samples), positions, columns,
                               {.rate = 0.4f, .stream = 16, .order = RowOrder::time_major});
  EXPECT_NE(by_sample, by_time);
  for (std::int64_t s = 0; s < samples; ++s) {
    for (std::int64_t p = 0; p < positions; ++p) {
      for (std::int64_t c = 0; c < columns; ++c) {
        EXPECT_EQ(by_sample[static_cast<std::size_t>((s * positions + p) * columns + c)],
                  by_time[static_cast<std::size_t>((p * samples + s) * columns + c)]);
      }
    }
  }
}

/// Rows of a subset of positions: groups of four elements that cross a row's end, and groups that do not.
TEST(Dropout, DrawsForSomePositionsWhatItDrawsForAll) {
  for (const std::int64_t columns : {5, 6, 8}) {
    Dropout rule{.rate = 0.4f, .stream = 16, .order = RowOrder::time_major};
    const auto whole = factors(test::sample_keys(3), 7, columns, rule);
    for (rule.first_position = 0; rule.first_position < 7; ++rule.first_position) {
      const auto part = factors(test::sample_keys(3), 7 - rule.first_position, columns, rule);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + rule.first_position * 3 * columns))
          << columns << " columns from position " << rule.first_position;
    }
  }
}

TEST(Dropout, LeavesAllAloneAtRateZeroAndNanAsItIs) {
  ReferenceSequences sequences;
  auto x = samples<double>("x", 12), y = samples<double>("y", 12);
  sequences.dropout(view(x, 4, 3), {}, {.rate = 0}, view(y, 4, 3));
  EXPECT_EQ(y, x);
  auto keys = test::sample_keys(4);
  for (double& v : x) v = std::numeric_limits<double>::quiet_NaN();
  sequences.dropout(view(x, 4, 3), view(keys, 4, 1), {.rate = 0.5f, .stream = 16}, view(y, 4, 3));
  for (const double v : y) EXPECT_TRUE(std::isnan(v));
  std::vector<double> none;
  std::vector<std::uint64_t> no_keys;
  sequences.dropout(view(none, 0, 3), view(no_keys, 0, 1), {.rate = 0.5f}, view(none, 0, 3));
}

}  // namespace
}  // namespace lockstep::model
