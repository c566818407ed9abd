#include "io/shards/whole_range.hpp"

#include <limits>

#include <gtest/gtest.h>

namespace lockstep::io {
namespace {

constexpr std::uint64_t kHigh = std::uint64_t{1} << 63;

TEST(WholeRangeTest, NumbersThatFloat64MovesByAPartOfTheirRangeAreBlurred) {
  WholeRange range;
  for (std::uint64_t i = 0; i < 500; ++i) range.add(kHigh + i);
  EXPECT_TRUE(range.is_blurred());
  EXPECT_EQ(range.in_words(),
            "whole numbers from 9223372036854775808 to 9223372036854776307, which float64 moves by up to 499");
  WholeRange below;
  for (std::int64_t i = 0; i < 500; ++i) below.add(std::numeric_limits<std::int64_t>::min() + i);
  EXPECT_TRUE(below.is_blurred());
}

TEST(WholeRangeTest, NumbersThatFloat64HoldsWellEnoughAreNot) {
  WholeRange exact, spread, equal;
  for (std::int64_t i = 0; i < 500; ++i) {
    exact.add((std::int64_t{1} << 53) - i);
    spread.add(1'700'000'000'123'456'789 + i * 86'400'000'000'000);  // days in nanoseconds
    equal.add(std::int64_t{1234567890123456789});
  }
  EXPECT_FALSE(exact.is_blurred());
  EXPECT_FALSE(spread.is_blurred());
  EXPECT_FALSE(equal.is_blurred()) << "a constant says nothing, rounded or not";
  EXPECT_FALSE(WholeRange().is_blurred());
}

}  // namespace
}  // namespace lockstep::io
