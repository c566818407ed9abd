#include "comm/survey/topology.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

using testing::ElementsAre;
using testing::Eq;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;

RankPlace place(int rank, const std::string& host, const std::string& cores, int host_cores) {
  return {.rank = rank,
          .local_rank = 0,
          .host = host,
          .pid = 100 + rank,
          .device = "cpu",
          .identity = {},
          .cores = cores,
          .host_cores = host_cores};
}

TEST(Topology, IsATableWithARowPerRank) {
  std::vector<RankPlace> places{place(0, "a", "0-3", 4), place(1, "node-b", "0-3,8", 16)};
  EXPECT_EQ(format_topology(places),
            "rank  host    local  pid  device  cores\n"
            "   0  a       0      100  cpu     0-3\n"
            "   1  node-b  0      101  cpu     0-3,8\n");
}

TEST(Topology, OfManyRanksIsFoldedPerHost) {
  std::vector<RankPlace> places;
  for (int rank = 0; rank < 12; ++rank) places.push_back(place(rank, rank < 8 ? "node1" : "node2", "0-7", 8));
  places[9].device = "gpu";
  EXPECT_EQ(format_topology(places, 11),
            "ranks  host   devices\n"
            "  0-7  node1  8 x cpu\n"
            " 8-11  node2  3 x cpu, 1 x gpu\n");
  EXPECT_THAT(format_topology(places, 12), HasSubstr("local"));
}

/// A rank on a GPU with the longest possible names.
RankPlace gpu_place(int rank, const std::string& host) {
  RankPlace on_gpu = place(rank, host, "0-7", 64);
  on_gpu.device = "NVIDIA RTX 6000 Ada Generation";
  on_gpu.identity = "0000:" + std::to_string(10 + rank) + ":00.0 GPU-8f3c1a" + std::to_string(10 + rank);
  return on_gpu;
}

TEST(Topology, TellsEqualDevicesApart) {
  EXPECT_EQ(format_topology({gpu_place(0, "node1"), place(1, "node1", "0", 64)}),
            "rank  host   local  pid  device                          identity                   cores\n"
            "   0  node1  0      100  NVIDIA RTX 6000 Ada Generation  0000:10:00.0 GPU-8f3c1a10  0-7\n"
            "   1  node1  0      101  cpu                                                        0\n");
}

TEST(Topology, FoldsDevicesThatDifferOnlyInTheirIdentity) {
  std::vector<RankPlace> places;
  for (int rank = 0; rank < 40; ++rank) places.push_back(gpu_place(rank, rank < 8 ? "node1" : "node2"));
  places[39].device = "NVIDIA H200";
  EXPECT_EQ(format_topology(places),
            "ranks  host   devices\n"
            "  0-7  node1  8 x NVIDIA RTX 6000 Ada Generation\n"
            " 8-39  node2  31 x NVIDIA RTX 6000 Ada Generation, 1 x NVIDIA H200\n");
}

TEST(Topology, NamesRanks) {
  EXPECT_EQ(name_ranks(std::vector{3}), "rank 3");
  EXPECT_EQ(name_ranks(std::vector{0, 1, 2, 5, 7, 8}), "ranks 0-2,5,7-8");
}

TEST(TopologyWarnings, OfRanksThatTheirControlGroupLeavesTooFewCpus) {
  const auto limited = [](int rank, const std::string& group, double cpus) {
    RankPlace its = place(rank, "a", "0-63", 64);
    its.cpu_group = group;
    its.group_cpus = cpus;
    return its;
  };
  EXPECT_THAT(topology_warnings({limited(0, "/g", 2), limited(1, "/g", 2)}, 1), IsEmpty());
  EXPECT_THAT(topology_warnings({limited(0, "/g", 1), limited(1, "/h", 1)}, 1), IsEmpty());
  const auto warnings = topology_warnings({limited(0, "/g", 1.5), limited(1, "/g", 1.5)}, 2);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].what, "a runs 2 ranks of 2 threads on 1.5 of its 64 cores (control group /g)");
  EXPECT_THAT(warnings[0].remedy, HasSubstr("--cpus-per-task"));
}

TEST(TopologyWarnings, AreNoneWhenAllIsWell) {
  EXPECT_THAT(topology_warnings({}, 1), IsEmpty());
  EXPECT_THAT(topology_warnings({place(0, "a", "0-1", 2), place(1, "a", "0-1", 2)}, 1), IsEmpty());
  EXPECT_THAT(topology_warnings({place(0, "a", "0", 2), place(1, "a", "1", 2)}, 1), IsEmpty());
  EXPECT_THAT(topology_warnings({place(0, "a", "0-3", 8), place(1, "a", "4-7", 8)}, 4), IsEmpty());
  EXPECT_THAT(topology_warnings({place(0, "a", "0", 1), place(1, "b", "0", 1)}, 1), IsEmpty());
}

TEST(TopologyWarnings, CountRanksAndThreadsAgainstCores) {
  EXPECT_THAT(topology_warnings({place(0, "a", "0-1", 2), place(1, "a", "0-1", 2), place(2, "a", "0-1", 2)}, 1),
              ElementsAre(Field(&TopologyWarning::what, Eq("a runs 3 ranks on 2 cores"))));
  EXPECT_THAT(topology_warnings({place(0, "a", "0-1", 2), place(1, "b", "0-3", 4)}, 4),
              ElementsAre(Field(&TopologyWarning::what, Eq("a runs 1 rank of 4 threads on 2 cores"))));
}

TEST(TopologyWarnings, SeeRanksBoundToOneCoreWhileOthersAreFree) {
  EXPECT_THAT(topology_warnings({place(0, "a", "0", 8), place(1, "a", "0", 8), place(2, "a", "1-3", 8)}, 1),
              ElementsAre(Field(&TopologyWarning::what,
                                Eq("a: ranks 0-1 bound to core 0 for 2 threads, while the host has 8 cores"))));
  EXPECT_THAT(topology_warnings({place(0, "a", "5", 8)}, 4),
              ElementsAre(Field(&TopologyWarning::what,
                                Eq("a: rank 0 bound to core 5 for 4 threads, while the host has 8 cores"))));
}

/// A rank of a host with two nodes of four cores.
RankPlace on_nodes(int rank, const std::string& cores, const std::string& nodes) {
  RankPlace result = place(rank, "big", cores, 8);
  result.nodes = nodes;
  result.host_nodes = 2;
  return result;
}

TEST(Topology, ShowsNumaNodesWhereThereAreSeveral) {
  EXPECT_EQ(format_topology({on_nodes(0, "0-3", "0"), on_nodes(1, "0-7", "0-1"), place(2, "a", "0", 1)}),
            "rank  host  local  pid  device  cores  NUMA\n"
            "   0  big   0      100  cpu     0-3    0\n"
            "   1  big   0      101  cpu     0-7    0-1\n"
            "   2  a     0      102  cpu     0\n");
}

RankPlace with_card(RankPlace place, const std::string& nodes) {
  place.card_nodes = nodes;
  return place;
}

TEST(Topology, ShowsWhereTheNetworkCardsAreWhereThatMatters) {
  EXPECT_EQ(format_topology({with_card(on_nodes(0, "0-3", "0"), "1"), place(1, "a", "0", 1)}),
            "rank  host  local  pid  device  cores  NUMA  network card's NUMA\n"
            "   0  big   0      100  cpu     0-3    0     1\n"
            "   1  a     0      101  cpu     0\n");
  EXPECT_EQ(format_topology({with_card(place(0, "a", "0", 1), "0")}),
            "rank  host  local  pid  device  cores\n"
            "   0  a     0      100  cpu     0\n");
}

TEST(TopologyWarnings, SeeRanksAllOfWhichAreFarFromTheNetworkCard) {
  const RankPlace far = with_card(on_nodes(0, "0-3", "0"), "1"), near = with_card(on_nodes(1, "4-7", "1"), "1");
  const RankPlace elsewhere = place(2, "a", "0", 1);
  EXPECT_THAT(topology_warnings({far, near, elsewhere}, 1), IsEmpty()) << "one is near";
  EXPECT_THAT(topology_warnings({far}, 1), IsEmpty()) << "nothing travels";
  const auto warnings = topology_warnings({far, elsewhere}, 1);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(to_text(warnings[0]),
            "big: the network card is at NUMA node 1, and its rank may run on node 0 alone: start mpirun with "
            "`--bind-to none`, and the program by `numactl --cpunodebind=1`");
}

TEST(TopologyWarnings, SeeRanksThatMayRunOnSeveralNumaNodes) {
  EXPECT_THAT(topology_warnings({on_nodes(0, "0-3", "0"), on_nodes(1, "4-7", "1")}, 4), IsEmpty());
  EXPECT_THAT(topology_warnings({on_nodes(0, "0-7", "0-1")}, 8), IsEmpty()) << "alone it needs both";
  const auto warnings = topology_warnings({on_nodes(0, "0-7", "0-1"), on_nodes(1, "0-7", "0-1")}, 4);
  EXPECT_THAT(warnings, ElementsAre(Field(&TopologyWarning::what,
                                          Eq("big: ranks 0-1 may run on several of 2 NUMA nodes, far from their "
                                             "memory"))));
  EXPECT_THAT(warnings.front().remedy, HasSubstr("--bind-to numa"));
}

TEST(TopologyWarnings, SayWhatToDo) {
  const auto warnings = topology_warnings({place(0, "a", "5", 8)}, 4);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].host, "a");
  EXPECT_EQ(
      to_text(warnings[0]),
      "a: rank 0 bound to core 5 for 4 threads, while the host has 8 cores: start mpirun with `--bind-to none` or "
      "`--map-by slot:PE=4`");
}

}  // namespace
}  // namespace lockstep::comm
