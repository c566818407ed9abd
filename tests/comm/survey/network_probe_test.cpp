#include "comm/survey/network_probe.hpp"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

std::set<std::pair<int, int>> pairs_in(const std::vector<Round>& rounds) {
  std::set<std::pair<int, int>> pairs;
  for (const Round& round : rounds) {
    std::set<int> busy;
    for (const HostPair& pair : round) {
      EXPECT_LT(pair.first, pair.second);
      EXPECT_TRUE(busy.insert(pair.first).second) << pair.first << " twice in a round";
      EXPECT_TRUE(busy.insert(pair.second).second) << pair.second << " twice in a round";
      EXPECT_TRUE(pairs.emplace(pair.first, pair.second).second) << "a pair twice";
    }
  }
  return pairs;
}

TEST(NetworkProbe, EveryPairMeetsOnceInATournament) {
  EXPECT_THAT(tournament(0), IsEmpty());
  EXPECT_THAT(tournament(1), IsEmpty());
  for (int hosts = 2; hosts <= 17; ++hosts) {
    const std::vector<Round> rounds = tournament(hosts);
    EXPECT_THAT(rounds, SizeIs(hosts % 2 == 0 ? hosts - 1 : hosts));
    EXPECT_THAT(pairs_in(rounds), SizeIs(hosts * (hosts - 1) / 2));
    for (const Round& round : rounds) EXPECT_THAT(round, SizeIs(hosts / 2)) << hosts;
  }
}

TEST(NetworkProbe, TheRingHasEveryNeighbourOnce) {
  EXPECT_THAT(ring_rounds(1), IsEmpty());
  EXPECT_THAT(ring_rounds(2), ElementsAre(Round{{0, 1}}));
  for (int hosts = 3; hosts <= 12; ++hosts) {
    const auto pairs = pairs_in(ring_rounds(hosts));
    EXPECT_THAT(pairs, SizeIs(hosts));
    for (int host = 0; host < hosts; ++host) {
      const int next = (host + 1) % hosts;
      EXPECT_TRUE(pairs.contains({std::min(host, next), std::max(host, next)})) << host << " of " << hosts;
    }
    EXPECT_LE(ring_rounds(hosts).size(), 3u);
  }
}

TEST(NetworkProbe, ManyHostsAreSampled) {
  EXPECT_THAT(plan_rounds(8, 7, 1), SizeIs(7));
  EXPECT_THAT(pairs_in(plan_rounds(8, 7, 1)), SizeIs(28));  // all pairs just fit
  const std::vector<Round> sample = plan_rounds(101, 20, 1);
  EXPECT_THAT(sample, SizeIs(20));
  const auto pairs = pairs_in(sample);  // also checks that no pair occurs twice
  EXPECT_GT(pairs.size(), 101u + 17u * 40u);
  for (int host = 0; host + 1 < 101; ++host) EXPECT_TRUE(pairs.contains({host, host + 1}));
  EXPECT_EQ(plan_rounds(101, 20, 1), sample) << "the same seed, the same sample";
  EXPECT_NE(plan_rounds(101, 20, 2), sample);
}

TEST(NetworkProbe, ChosenPairsArePackedIntoRounds) {
  EXPECT_THAT(rounds_of({}), IsEmpty());
  const std::vector<HostPair> pairs{{0, 1}, {0, 2}, {2, 3}, {1, 3}, {4, 5}};
  const std::vector<Round> rounds = rounds_of(pairs);
  EXPECT_THAT(rounds, ElementsAre(Round{{0, 1}, {2, 3}, {4, 5}}, Round{{0, 2}, {1, 3}}));
}

TEST(NetworkProbe, TimeDecidesHowManyRoundsFit) {
  EXPECT_EQ(most_rounds({.seconds = 5}), 50);
  EXPECT_EQ(most_rounds({.seconds = 0.01}), 3);
}

}  // namespace
}  // namespace lockstep::comm
