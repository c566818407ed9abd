/// Bytes that a ring posts ahead, by the bytes that have come.
#include <gtest/gtest.h>

#include "comm/host/ring_sum.hpp"

namespace lockstep::comm {
namespace {

double gigabits(double rate) { return rate * 1e9 / 8; }

TEST(RingWindow, IsWhatComesInTwoMilliseconds) {
  EXPECT_EQ(window_for(gigabits(10)), 2'500'000u);
  EXPECT_EQ(window_for(gigabits(16)), 4'000'000u);
}

TEST(RingWindow, StaysSmallOnSlowLinksAndWithinItsMemoryOnFastOnes) {
  EXPECT_EQ(window_for(0), std::size_t{960} << 10);
  EXPECT_EQ(window_for(gigabits(1)), std::size_t{960} << 10);
  EXPECT_EQ(window_for(gigabits(100)), std::size_t{4} << 20);
  EXPECT_EQ(window_for(1 / 0.0), std::size_t{4} << 20) << "all came at once";
}

}  // namespace
}  // namespace lockstep::comm
