#include "app/bench/random_values.hpp"

#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::app {
namespace {

TEST(RandomValues, HaveMeanZeroAndVarianceOne) {
  for (const std::uint32_t stream : {0u, 1u, 2u, 77u}) {
    std::vector<float> values(100'000);
    fill_random(values, stream);
    double sum = 0, squares = 0, neighbours = 0;
    int zeros = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      sum += values[i];
      squares += values[i] * values[i];
      if (i > 0) neighbours += values[i] * values[i - 1];
      zeros += values[i] == 0;
      ASSERT_LE(std::abs(values[i]), 1.7320509f);
    }
    const auto count = static_cast<double>(values.size());
    EXPECT_NEAR(sum / count, 0, 0.02);
    EXPECT_NEAR(squares / count, 1, 0.02);
    EXPECT_NEAR(neighbours / count, 0, 0.02);
    EXPECT_LE(zeros, 1);
  }
}

TEST(RandomValues, DifferBetweenStreams) {
  std::vector<float> a(100'000), b(a.size());
  fill_random(a, 1);
  fill_random(b, 2);
  double products = 0;
  for (std::size_t i = 0; i < a.size(); ++i) products += a[i] * b[i];
  EXPECT_NEAR(products / static_cast<double>(a.size()), 0, 0.02);
  fill_random(b, 1);
  EXPECT_EQ(a, b);
}

TEST(RandomIndices, AreAllOfThoseBelowTheirNumber) {
  for (const std::int64_t count : {std::int64_t{1}, std::int64_t{2}, std::int64_t{10}, std::int64_t{1000}}) {
    std::vector<float> values(20'000);
    fill_random_indices(values, 3, count);
    std::set<std::int32_t> seen;
    for (const float& value : values) {
      std::int32_t index = 0;
      std::memcpy(&index, &value, sizeof index);
      seen.insert(index);
    }
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(count));
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), count - 1);
  }
}

}  // namespace
}  // namespace lockstep::app
