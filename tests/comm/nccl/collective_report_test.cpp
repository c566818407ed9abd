/// The lines imitate those that NCCL 2.28 prints with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING.
#include "comm/nccl/collective_report.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::string log_of(std::initializer_list<const char*> texts) {
  std::string log;
  for (const char* text : texts) log += std::string("node7:4711:4720 [0] NCCL INFO ") + text + "\n";
  return log;
}

const std::string kFourRanks =
    "NCCL version 2.28.9+cuda13.0\n" +
    log_of({"ncclCommInitRankConfig comm 0x55 rank 0 nranks 4 cudaDev 0 - Init START", "Channel 00/02 : 0 1 2 3",
            "Channel 01/02 : 0 1 2 3", "Ring 00 : 3 -> 0 -> 1", "Ring 01 : 3 -> 0 -> 1",
            "Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1",
            "2 coll channels, 2 collnet channels, 0 nvls channels, 2 p2p channels, 2 p2p "
            "channels per peer",
            "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", "Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
            "Connected all rings, use ring PXN 0 GDR 1",
            "AllReduce: 64 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}",
            "AllReduce: 4194304 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..1}",
            "AllReduce: 4194304 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..1}"});

TEST(CollectiveReport, SaysHowFourRanksOfOneHostTalk) {
  const CollectiveReport report = parse_nccl_log(kFourRanks);
  EXPECT_THAT(report.rings, ElementsAre(ElementsAre("0", "1", "2", "3")));
  EXPECT_EQ(report.channels, 2);
  EXPECT_THAT(report.transports, ElementsAre("P2P/CUMEM"));
  EXPECT_THAT(report.choices,
              ElementsAre(CollectiveChoice{64, "RING", "LL"}, CollectiveChoice{4194304, "RING", "SIMPLE"}));
  EXPECT_EQ(describe(report, true),
            "ring 0 -> 1 -> 2 -> 3 -> 0, 2 channels, over P2P/CUMEM, algorithm Ring for 4 MiB (Simple)");
}

TEST(CollectiveReport, KnowsTheTransports) {
  const CollectiveReport report = parse_nccl_log(log_of({
      "Channel 00 : 0[0] -> 1[1] via SHM/direct/direct",
      "Channel 00/0 : 3[3] -> 0[0] [receive] via NET/IB/2/GDRDMA(PCI)",
      "Channel 01/0 : 0[0] -> 1[1] [send] via NET/Socket/0",
      "Channel 01/0 : 0[0] -> 1[1] [send] via NET/IB/1(2)/GDRDMA/Shared",
      "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC",
      "Channel 00/0 : 0[0] -> 1[1] via P2P/direct pointer",
  }));
  EXPECT_THAT(report.transports, ElementsAre("NET/IB", "NET/Socket", "P2P/IPC", "P2P/direct pointer", "SHM"));
}

TEST(CollectiveReport, ShowsThatRingsDiffer) {
  const CollectiveReport report =
      parse_nccl_log(log_of({"Channel 00/02 :  0  1  2 10", "Channel 01/02 :  0 10  2  1"}));
  EXPECT_THAT(report.rings, ElementsAre(ElementsAre("0", "1", "2", "10"), ElementsAre("0", "10", "2", "1")));
  EXPECT_THAT(describe(report, false), HasSubstr("ring 0 -> 1 -> 2 -> 10 -> 0 and 1 more"));
}

TEST(CollectiveReport, TakesALineThatNcclCutShort) {
  const CollectiveReport report = parse_nccl_log(log_of({"Channel 00/16 :  0  1  2  3  4  5..."}));
  EXPECT_THAT(report.rings, ElementsAre(ElementsAre("0", "1", "2", "3", "4", "...")));
}

TEST(CollectiveReport, PointsOutThatItIsNotTheRing) {
  const std::string log = log_of({"AllReduce: 4194304 Bytes -> Algo NVLS_TREE proto SIMPLE channel{Lo..Hi}={0..15}"});
  EXPECT_EQ(describe(parse_nccl_log(log), false), "algorithm NVLS_TREE for 4 MiB (Simple)");
  EXPECT_THAT(describe(parse_nccl_log(log), true), HasSubstr("NOT the ring that was asked for"));
  EXPECT_THAT(describe(parse_nccl_log(kFourRanks), true), Not(HasSubstr("NOT")));
}

TEST(CollectiveReport, JudgesTheLargestSum) {
  const std::string log = log_of({"AllReduce: 1024 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}",
                                  "AllReduce: 3145728 Bytes -> Algo TREE proto LL128 channel{Lo..Hi}={0..0}",
                                  "AllReduce: 96 Bytes -> Algo COLLNET_DIRECT proto SIMPLE channel{Lo..Hi}={0..0}"});
  EXPECT_EQ(describe(parse_nccl_log(log), false), "algorithm Tree for 3 MiB (LL128)");
  EXPECT_EQ(
      describe({.rings = {}, .channels = 1, .transports = {}, .choices = {{96, "COLLNET_DIRECT", "SIMPLE"}}}, false),
      "1 channel, algorithm Collnet direct for 96 B (Simple)");
}

TEST(CollectiveReport, ClaimsNothingThatTheLogDoesNotSay) {
  for (const std::string& log :
       {std::string(), std::string("\n\n"), std::string("NCCL INFO"), std::string("no line of the kind\nat all"),
        log_of({"", "Channel", "Channel 0", "Channel 00/02 :", "Channel 00/02 : 0", "Channel 00/02 : zero one",
                "Channel 00/99999999999999999999 : 0 1", "AllReduce:", "AllReduce: x Bytes -> Algo RING proto LL",
                "AllReduce: 64 Bytes -> Algo ", "AllReduce: 64 Bytes -> Algo RING proto ", "coll channels",
                "x coll channels", "AllGather: 64 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}",
                "AllReduce [Symmetric]: 64 Bytes -> Kernel AllReduce_AGxLL_R nchannels 1 nthreads 512 nWorks 1"})}) {
    const CollectiveReport report = parse_nccl_log(log);
    EXPECT_THAT(report.rings, IsEmpty()) << log;
    EXPECT_EQ(report.channels, 0) << log;
    EXPECT_THAT(report.transports, IsEmpty()) << log;
    EXPECT_THAT(report.choices, IsEmpty()) << log;
    EXPECT_EQ(describe(report, true), "its log did not say which algorithm it runs") << log;
  }
}

TEST(CollectiveReport, OfAnyPieceOfALogIsNoTrouble) {
  for (std::size_t length = 0; length <= kFourRanks.size(); ++length) {
    describe(parse_nccl_log(std::string_view(kFourRanks).substr(0, length)), true);
    describe(parse_nccl_log(std::string_view(kFourRanks).substr(length)), true);
  }
}

}  // namespace
}  // namespace lockstep::comm
