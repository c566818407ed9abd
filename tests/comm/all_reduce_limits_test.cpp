/// The schedule of a sum as a function of its size and the number of hosts.
#include "comm/all_reduce_limits.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

TEST(AllReduceLimitsTest, TakeTheScheduleOfTheirSize) {
  const AllReduceLimits limits{.doubling = 100, .halving = 200};
  EXPECT_EQ(limits.schedule(0), AllReduceSchedule::doubling);
  EXPECT_EQ(limits.schedule(100), AllReduceSchedule::doubling);
  EXPECT_EQ(limits.schedule(101), AllReduceSchedule::halving);
  EXPECT_EQ(limits.schedule(200), AllReduceSchedule::halving);
  EXPECT_EQ(limits.schedule(201), AllReduceSchedule::ring);
}

TEST(AllReduceLimitsTest, OfOneScheduleLeaveTheSmallestAsOneMessage) {
  for (const AllReduceSchedule schedule :
       {AllReduceSchedule::doubling, AllReduceSchedule::halving, AllReduceSchedule::ring}) {
    const AllReduceLimits limits = AllReduceLimits::all_by(schedule);
    EXPECT_EQ(limits.schedule(100), AllReduceSchedule::doubling);
    EXPECT_EQ(limits.schedule(1000), schedule);
    EXPECT_EQ(limits.schedule(std::size_t{1} << 40), schedule);
  }
}

TEST(AllReduceLimitsTest, UsuallyGrowWithTheRing) {
  constexpr std::size_t kKi = 1024;
  for (const int positions : {1, 2, 3}) {  // a ring needs no more messages
    EXPECT_EQ(AllReduceLimits::usual(positions), (AllReduceLimits{.doubling = 16 * kKi, .halving = 16 * kKi}));
  }
  EXPECT_EQ(AllReduceLimits::usual(4), (AllReduceLimits{.doubling = 16 * kKi, .halving = 128 * kKi}));
  EXPECT_EQ(AllReduceLimits::usual(8), (AllReduceLimits{.doubling = 16 * kKi, .halving = 512 * kKi}));
  EXPECT_EQ(AllReduceLimits::usual(1024), (AllReduceLimits{.doubling = 16 * kKi, .halving = 1013 * 128 * kKi}));
}

TEST(AllReduceLimitsTest, GrowWithWhatTheNetworkCarriesAtOnce) {
  EXPECT_EQ(AllReduceLimits::of_network(8, 1000), (AllReduceLimits{.doubling = 1000, .halving = 32'000}));
  EXPECT_EQ(AllReduceLimits::of_network(2, 1000), (AllReduceLimits{.doubling = 1000, .halving = 1000}));
}

TEST(AllReduceLimitsTest, AreBestWhereTheSizesTakeTheLeastTime) {
  std::vector<ScheduleSeconds> sizes{
      {.bytes = 1000, .seconds = {1, 2, 4}},    {.bytes = 2000, .seconds = {2, 2.1, 5}},
      {.bytes = 4000, .seconds = {4, 3, 6}},    {.bytes = 8000, .seconds = {8, 5, 7}},
      {.bytes = 16'000, .seconds = {16, 9, 8}}, {.bytes = 32'000, .seconds = {32, 17, 14}}};
  EXPECT_EQ(best_limits(sizes), (AllReduceLimits{.doubling = 2000, .halving = 8000}));
  sizes[0].seconds = {1, 2, 0.9};  // timed badly
  EXPECT_EQ(best_limits(sizes), (AllReduceLimits{.doubling = 2000, .halving = 8000}));
  for (ScheduleSeconds& size : sizes) size.seconds[2] = 0.1;
  EXPECT_EQ(best_limits(sizes), (AllReduceLimits{.doubling = 0, .halving = 0}));
  for (ScheduleSeconds& size : sizes) size.seconds[1] = 0.05;
  EXPECT_EQ(best_limits(sizes), (AllReduceLimits{.doubling = 0, .halving = 32'000}));
  EXPECT_EQ(best_limits({}), AllReduceLimits{});
}

TEST(AllReduceLimitsTest, AreToldInWords) {
  EXPECT_EQ(to_text({.doubling = 16384, .halving = 3 << 20}),
            "by doubling up to 16 KiB, by halving up to 3 MiB, then by the ring");
  EXPECT_EQ(to_text({.doubling = 1500, .halving = 1500}), "by doubling up to 1500 bytes, then by the ring");
  EXPECT_EQ(to_text(AllReduceLimits::all_by(AllReduceSchedule::doubling)), "by doubling");
  EXPECT_EQ(to_text(AllReduceLimits::all_by(AllReduceSchedule::halving)),
            "by doubling up to 512 bytes, then by halving");
}

}  // namespace
}  // namespace lockstep::comm
