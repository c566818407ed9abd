#include "comm/host/memory_limit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

constexpr std::size_t kGibi = std::size_t{1} << 30;
constexpr std::string_view kMeminfo =
    "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:    8388608 kB\nBuffers: 1 kB\n";

TEST(MemoryShortage, IsNoneWhereItFits) {
  EXPECT_EQ(memory_shortage(0, 4, kMeminfo), "");
  EXPECT_EQ(memory_shortage(8 * kGibi, 2, kMeminfo), "");
  EXPECT_EQ(memory_shortage(kGibi, 16, kMeminfo), "");
}

TEST(MemoryShortage, CountsAllRanksAgainstAllMemoryAndOneAgainstTheFree) {
  EXPECT_EQ(memory_shortage(8 * kGibi, 3, kMeminfo),
            "each of 3 ranks on a host wants 8.0 GiB of memory, and the host has 16.0 GiB, 8.0 GiB of it free: take a "
            "smaller "
            "network or sum, or fewer ranks per host");
  EXPECT_THAT(memory_shortage(8 * kGibi + 1, 1, kMeminfo), testing::HasSubstr("one rank wants 8.0 GiB"));
}

TEST(MemoryShortage, WhatIsUnknownIsNoReason) {
  EXPECT_EQ(memory_shortage(100 * kGibi, 100, ""), "");
  EXPECT_EQ(memory_shortage(100 * kGibi, 1, "MemTotal: many\n"), "");
}

TEST(MemoryShortage, ThisHostHasSome) {
  EXPECT_EQ(memory_shortage(4096, 1, read_meminfo()), "");
  EXPECT_NE(memory_shortage(std::size_t{1} << 50, 1, read_meminfo()), "");
}

}  // namespace
}  // namespace lockstep::comm
