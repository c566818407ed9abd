#include "app/check/check_network.hpp"

#include "app/check/synthetic_facts.hpp"

namespace lockstep::app {
namespace {

using comm::PairFigures;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr double kGigabyte = 1e9, kMicrosecond = 1e-6;

/// All pairs alike.
std::vector<PairFigures> alike(int hosts) {
  std::vector<PairFigures> pairs;
  for (const comm::Round& round : comm::tournament(hosts)) {
    for (const comm::HostPair& pair : round) {
      pairs.push_back({.pair = pair, .latency = 20 * kMicrosecond, .forward = kGigabyte, .backward = 1.1 * kGigabyte});
    }
  }
  return pairs;
}

std::vector<std::string> hosts(int count) { return names_of(healthy(count)); }

PairFigures& between(std::vector<PairFigures>& pairs, int first, int second) {
  return *std::find_if(pairs.begin(), pairs.end(), [&](const PairFigures& p) {
    return p.pair == comm::HostPair{first, second};
  });
}

void scale_host(std::vector<PairFigures>& pairs, int host, double bandwidth) {
  for (PairFigures& p : pairs) {
    if (p.pair.first == host || p.pair.second == host) p.backward *= bandwidth;
  }
}

TEST(CheckPairs, LikeAreFine) {
  for (int count = 1; count < 9; ++count) {
    const std::vector<PairFigures> pairs = alike(count);
    EXPECT_THAT(judge_pairs(pairs, hosts(count)), IsEmpty()) << count;
    EXPECT_THAT(slow_pairs(pairs, count), IsEmpty()) << count;
  }
}

TEST(CheckPairs, TheRulesOfSlowness) {
  const Usual usual{.bandwidth = kGigabyte, .latency = 20 * kMicrosecond};
  const auto pair = [](double bandwidth, double latency) {
    return PairFigures{.latency = latency, .forward = 2 * kGigabyte, .backward = bandwidth};
  };
  EXPECT_FALSE(is_slow(pair(0.71 * kGigabyte, 1), usual));
  EXPECT_TRUE(is_slow(pair(0.69 * kGigabyte, 20 * kMicrosecond), usual));
  EXPECT_FALSE(is_late(pair(1, 89 * kMicrosecond), usual));
  EXPECT_TRUE(is_late(pair(kGigabyte, 91 * kMicrosecond), usual));
}

TEST(CheckPairs, AmongThreeHostsTheSlowOneIsFound) {
  std::vector<PairFigures> pairs = alike(3);
  scale_host(pairs, 1, 0.5);  // two of three pairs: their median is slow, too
  EXPECT_THAT(judge_pairs(pairs, hosts(3)),
              ElementsAre(AllOf(warning(),
                                what(HasSubstr("node1 has less than 70 % of the usual bandwidth (usual here: 1 GB/s")),
                                blames({"node1"}), where(HasSubstr("node0 - node1 (0.55 GB/s, 20 us)")))));
}

TEST(CheckPairs, ACrippledHostIsAnError) {
  std::vector<PairFigures> pairs = alike(6);
  scale_host(pairs, 4, 0.1);
  EXPECT_THAT(judge_pairs(pairs, hosts(6)),
              ElementsAre(AllOf(error(), what(HasSubstr("node4 has less than a quarter")), blames({"node4"}))));
  scale_host(pairs, 2, 0.1);
  EXPECT_THAT(judge_pairs(pairs, hosts(6)), testing::SizeIs(testing::Ge(1u)));
}

TEST(CheckPairs, TwoHostsGiveNothingToCompare) {
  std::vector<PairFigures> pairs = alike(2);
  scale_host(pairs, 0, 0.01);
  EXPECT_THAT(judge_pairs(pairs, hosts(2)), IsEmpty());
}

TEST(CheckPairs, OneSlowPairBlamesNoHost) {
  std::vector<PairFigures> pairs = alike(5);
  between(pairs, 1, 3).forward = 0.4 * kGigabyte;
  between(pairs, 0, 2).latency = 1e-3;
  EXPECT_THAT(
      judge_pairs(pairs, hosts(5)),
      ElementsAre(AllOf(warning(), what(HasSubstr("less than 70 % of the usual bandwidth between 1 pair of hosts")),
                        blames({}), where(HasSubstr("node1 - node3 (0.4 GB/s"))),
                  AllOf(warning(), what(HasSubstr("twice the usual latency between 1 pair of hosts")), blames({}),
                        where(HasSubstr("node0 - node2 (1 GB/s, 1 ms)")))));
}

TEST(CheckPairs, AHostThatAnswersLate) {
  std::vector<PairFigures> pairs = alike(4);
  for (PairFigures& p : pairs) p.latency = p.pair.first == 0 ? 5e-4 : p.latency;
  EXPECT_THAT(judge_pairs(pairs, hosts(4)),
              ElementsAre(AllOf(warning(), what(HasSubstr("node0 takes more than twice")), blames({"node0"}))));
}

TEST(CheckPairs, HostsThatDoNotReachEachOther) {
  std::vector<PairFigures> pairs = alike(2);
  pairs[0].error = "nothing has come";
  EXPECT_THAT(judge_pairs(pairs, hosts(2)),
              ElementsAre(AllOf(error(), what("no way between 1 pair of hosts"), where("node0 - node1"), blames({}))));
  pairs = alike(4);
  for (const int other : {0, 1}) between(pairs, other, 2).error = "nothing";
  between(pairs, 2, 3).error = "nothing";
  EXPECT_THAT(judge_pairs(pairs, hosts(4)),
              ElementsAre(AllOf(error(), what("node2 does not reach other hosts"), blames({"node2"}))));
}

TEST(CheckPairs, TwoRacksAreNoHostsFault) {
  std::vector<PairFigures> pairs = alike(6);
  for (PairFigures& p : pairs) {
    if (p.pair.first < 3 && p.pair.second >= 3) p.forward = p.backward = 0.5 * kGigabyte;
  }
  EXPECT_THAT(judge_pairs(pairs, hosts(6)), ElementsAre(AllOf(warning(), what(HasSubstr("between 9 pairs of hosts")),
                                                              where(HasSubstr("and 1 more")))));
}

TEST(CheckPairs, ASecondLookCountsWhereItIsBetter) {
  std::vector<PairFigures> pairs = alike(3);
  between(pairs, 0, 1).forward = 1;
  const std::vector<comm::HostPair> slow = slow_pairs(pairs, 3);
  ASSERT_THAT(slow, ElementsAre(comm::HostPair{0, 1}));
  std::vector<PairFigures> again = alike(2);
  again[0].latency = 1;
  merge_better(pairs, again);
  EXPECT_EQ(between(pairs, 0, 1).forward, kGigabyte);
  EXPECT_EQ(between(pairs, 0, 1).latency, 20 * kMicrosecond);
  again[0].error = "gone";
  merge_better(pairs, again);
  EXPECT_EQ(between(pairs, 0, 1).error, "gone");
}

TEST(CheckPairs, AreDescribed) {
  EXPECT_EQ(describe_pairs({}, 1), "one host: nothing to measure");
  EXPECT_EQ(describe_pairs(alike(2), 2), "1 pair of hosts, 1 GB/s, 20 us");
  std::vector<PairFigures> pairs = alike(3);
  pairs[0].forward = kGigabyte / 2;
  EXPECT_EQ(describe_pairs(pairs, 3), "3 pairs of hosts, 1 GB/s (least 0.5 GB/s), 20 us (most 20 us)");
  EXPECT_THAT(describe_pairs(std::span(pairs).first(2), 3), HasSubstr("2 of 3 pairs of hosts"));
  for (PairFigures& p : pairs) p.error = "gone";
  EXPECT_EQ(describe_pairs(pairs, 3), "3 pairs of hosts, 3 failed");
}

TEST(CheckAllReduce, TellsTheRuleAndWhatTheFiguresSpeakFor) {
  EXPECT_EQ(describe_all_reduce({}, 1), "one host: nothing travels");
  const std::string rule = "by doubling up to 16 KiB, by halving up to 128 KiB, then by the ring";
  EXPECT_EQ(describe_all_reduce({}, 4), rule);
  std::vector<PairFigures> pairs = alike(4);  // 1 GB/s, 20 us
  EXPECT_EQ(describe_all_reduce(pairs, 4), rule);
  for (PairFigures& p : pairs) p.latency = 1e-3;  // 1 MB on its way
  EXPECT_EQ(describe_all_reduce(pairs, 4),
            rule +
                "; that suits networks with 16.0 KiB on their way at once, and here it is 976.6 KiB: give --all-reduce "
                "measured");
  for (PairFigures& p : pairs) p.latency = 3e-6;
  EXPECT_THAT(describe_all_reduce(pairs, 4), HasSubstr("here it is 2.9 KiB: give --all-reduce measured"));
}

TEST(CheckInterfaces, AllIsWell) {
  const std::vector<RankFacts> facts = healthy(3);
  EXPECT_THAT(judge_interfaces(facts, names_of(facts)), IsEmpty());
  EXPECT_THAT(judge_fabric(facts, names_of(facts)), IsEmpty());
  const std::vector<CommonSubnet> subnets = common_subnets(facts);
  ASSERT_THAT(subnets, testing::SizeIs(1));
  EXPECT_EQ(subnets[0].subnet, "10.0.0.0/24");
  EXPECT_THAT(subnets[0].interfaces, ElementsAre("eth0"));
  EXPECT_EQ(subnets[0].megabits, 10000);
}

TEST(CheckInterfaces, TheFastestSubnetComesFirst) {
  std::vector<RankFacts> facts = healthy(2);
  for (std::size_t i = 0; i < 2; ++i) {
    facts[i].addresses.push_back(interface_at("ib0", "10.7.0." + std::to_string(i + 1), 16));
    facts[i].addresses.back().megabits = 200000;
    facts[i].addresses.push_back(interface_at("eth0", "fd00::" + std::to_string(i + 1), 64));
    facts[i].addresses.back().megabits = 400000;
  }
  facts[1].addresses.push_back(interface_at("eth9", "10.9.0.1"));  // not on the other host
  const std::vector<CommonSubnet> subnets = common_subnets(facts);
  ASSERT_THAT(subnets, testing::SizeIs(3));
  EXPECT_EQ(subnets[0].subnet, "10.7.0.0/16");
  EXPECT_EQ(subnets[2].subnet, "fd00::/64") << "IPv4 first";
}

TEST(CheckInterfaces, ContainersBridgesHaveTheSameAddressEverywhere) {
  std::vector<RankFacts> facts = healthy(3);
  for (RankFacts& host : facts) host.addresses.push_back(interface_at("docker0", "172.17.0.1", 16));
  EXPECT_THAT(judge_interfaces(facts, names_of(facts)),
              ElementsAre(AllOf(warning(), what(HasSubstr("docker0 172.17.0.1")), where("node0, node1 and node2"),
                                remedy(AllOf(HasSubstr("--mca btl_tcp_if_include 10.0.0.0/24"),
                                             HasSubstr("NCCL_SOCKET_IFNAME=eth0"))))));
  EXPECT_THAT(common_subnets(facts), testing::SizeIs(1)) << "it joins nobody";

  std::vector<RankFacts> including = facts, excluding = facts;
  for (RankFacts& host : including) host.environment = {"OMPI_MCA_btl_tcp_if_include=eth0"};
  for (RankFacts& host : excluding) host.environment = {"OMPI_MCA_btl_tcp_if_exclude=lo,docker0"};
  EXPECT_THAT(judge_interfaces(including, names_of(facts)), IsEmpty());
  EXPECT_THAT(judge_interfaces(excluding, names_of(facts)), IsEmpty());
}

TEST(CheckInterfaces, AListThatNamesNothingHere) {
  std::vector<RankFacts> facts = healthy(3);
  for (RankFacts& host : facts) host.environment = {"OMPI_MCA_btl_tcp_if_include=eth1"};
  facts[0].addresses[1].interface = facts[1].addresses[1].interface = "eth1";
  EXPECT_THAT(judge_interfaces(facts, names_of(facts)),
              ElementsAre(AllOf(error(), what("btl_tcp_if_include eth1 names nothing that is there"), where("node2"),
                                remedy(HasSubstr("10.0.0.0/24 (eth1,eth0)")), blames({"node2"}))));
}

TEST(CheckInterfaces, NoCommonSubnetAndNoAddress) {
  std::vector<RankFacts> facts = healthy(2);
  facts[1].addresses[1] = interface_at("eth0", "192.168.5.2");
  EXPECT_THAT(judge_interfaces(facts, names_of(facts)),
              ElementsAre(AllOf(warning(), what(HasSubstr("no subnet")),
                                where("node0 in 10.0.0.0/24 and node1 in 192.168.5.0/24"))));
  facts[1].addresses.pop_back();
  EXPECT_THAT(judge_interfaces(facts, names_of(facts)), ElementsAre(AllOf(error(), where("node1"), blames({"node1"}))));
  facts[1].addresses = facts[0].addresses;  // namespaces behind one address
  EXPECT_THAT(judge_interfaces(facts, names_of(facts)), ElementsAre(what(HasSubstr("several hosts have the address"))));
}

TEST(CheckInterfaces, PacketsAndSpeedsThatDiffer) {
  std::vector<RankFacts> facts = healthy(4);
  for (RankFacts& host : facts) host.addresses[1].mtu = 9000;
  facts[2].addresses[1].mtu = 1500;
  facts[3].addresses[1].megabits = 100;
  EXPECT_THAT(
      judge_interfaces(facts, names_of(facts)),
      ElementsAre(AllOf(warning(), what(HasSubstr("(MTU): most have 9000")), where("eth0 of node2 has 1500"),
                        blames({"node2"})),
                  AllOf(warning(), what(HasSubstr("speed")), where("eth0 of node3 has 100"), blames({"node3"}))));
  facts = healthy(2);
  facts[1].addresses[1].megabits = 0;  // not known
  EXPECT_THAT(judge_interfaces(facts, names_of(facts)), IsEmpty());
}

TEST(CheckInterfaces, OneHostHasNoOthersToReach) {
  std::vector<RankFacts> facts = healthy(1);
  facts[0].addresses.clear();
  EXPECT_THAT(judge_interfaces(facts, names_of(facts)), IsEmpty());
}

TEST(CheckFabric, AHostWithAPortThatIsDown) {
  std::vector<RankFacts> facts = healthy(3);
  for (RankFacts& host : facts) host.fabric = {{.name = "mlx5_0/1", .state = "ACTIVE", .rate = "200 Gb/sec"}};
  EXPECT_THAT(judge_fabric(facts, names_of(facts)), IsEmpty());
  facts[1].fabric[0].state = "DOWN";
  EXPECT_THAT(judge_fabric(facts, names_of(facts)),
              ElementsAre(AllOf(warning(), what(HasSubstr("most have 200 Gb/sec")), where("node1 has none"),
                                blames({"node1"}))));
}

TEST(CheckSpeed, TrafficOverAnotherInterface) {
  const std::vector<RankFacts> facts = healthy(2);  // 10 Gbit/s
  std::vector<PairFigures> pairs = alike(2);
  EXPECT_THAT(judge_speed(pairs, facts), IsEmpty());
  pairs[0].forward = 0.117 * kGigabyte;  // the rate of a gigabit link
  EXPECT_THAT(judge_speed(pairs, facts), ElementsAre(AllOf(warning(), what(HasSubstr("10000 Mbit/s")),
                                                           remedy(HasSubstr("btl_tcp_if_include 10.0.0.0/24")))));
  EXPECT_THAT(judge_speed({}, facts), IsEmpty());
}

TEST(CheckClocks, MoreThanASecondApart) {
  std::vector<comm::ClockOffset> offsets(4);
  offsets[1] = {.seconds = 0.9, .uncertainty = 1e-4};
  EXPECT_THAT(judge_clocks(offsets, hosts(4)), IsEmpty());
  offsets[1].seconds = -3;
  offsets[2] = {.seconds = 1.2, .uncertainty = 0.5};  // may be 0.7
  offsets[3].error = "nothing has come";
  EXPECT_THAT(judge_clocks(offsets, hosts(4)),
              ElementsAre(AllOf(warning(), where("node1 is 3 s behind"), remedy(HasSubstr("chrony"))),
                          AllOf(warning(), what(HasSubstr("did not answer")), where("node3"))));
}

}  // namespace
}  // namespace lockstep::app
