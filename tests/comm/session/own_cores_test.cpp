#include "comm/session/own_cores.hpp"

#include <algorithm>

#include <gtest/gtest.h>
#include <sched.h>

namespace lockstep::comm {
namespace {

TEST(OwnCores, AreThoseThatTheProcessIsBoundTo) {
  cpu_set_t before;
  CPU_ZERO(&before);
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  const std::vector<int> all = own_cores();
  EXPECT_EQ(static_cast<int>(all.size()), CPU_COUNT(&before));
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(all.back()), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(own_cores(), std::vector<int>{all.back()});
  EXPECT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

}  // namespace
}  // namespace lockstep::comm
