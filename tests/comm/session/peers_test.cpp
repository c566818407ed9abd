#include "comm/session/peers.hpp"

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::comm {
namespace {

using testing::ElementsAre;

PeerInfo card_of(const std::string& host, std::uint64_t machine, int pretended = 0) {
  PeerInfo info;
  host.copy(info.host.data(), info.host.size() - 1);
  info.machine = machine;
  info.pretended_machine = pretended;
  return info;
}

TEST(Machines, HoldTheRanksOfOneKernelAndOneName) {
  const PeerTable peers(
      1, {card_of("node1", 7), card_of("node2", 8), card_of("node1", 7), card_of("node2", 8), card_of("node2", 7)});
  EXPECT_THAT(peers.machines(), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(4)));
  EXPECT_TRUE(peers.same_machine(3));
  EXPECT_FALSE(peers.same_machine(4));
}

TEST(Machines, ThatCouldNotBeToldHoldOneRankEach) {
  const PeerTable peers(0, {card_of("node", 0), card_of("node", 0), card_of("node", 5), card_of("node", 0)});
  EXPECT_THAT(peers.machines(), ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2), ElementsAre(3)));
  EXPECT_TRUE(peers.same_machine(0));
  EXPECT_FALSE(peers.same_machine(1));
}

TEST(Machines, ArePretendedForTests) {
  const PeerTable peers(0, {card_of("node", 5, 1), card_of("node", 5, 2), card_of("node", 5, 1)});
  EXPECT_THAT(peers.machines(), ElementsAre(ElementsAre(0, 2), ElementsAre(1)));
  EXPECT_FALSE(peers.same_machine(1));
}

TEST(Cores, AreSharedByAllRanksOfAKernelWhateverContainersTheyAreIn) {
  const auto rank_on = [](const char* host, std::uint64_t machine, std::uint64_t kernel, std::uint64_t cores) {
    PeerInfo info = card_of(host, machine);
    info.kernel = kernel;
    info.cores[0] = cores;
    return info;
  };
  const std::vector<PeerInfo> infos{rank_on("pod1", 1, 9, 0b0011), rank_on("pod2", 2, 9, 0b0110),
                                    rank_on("node", 3, 8, 0b1111)};
  EXPECT_EQ(PeerTable(0, infos).cores_left(1), 1) << "three cores, two ranks";
  EXPECT_EQ(PeerTable(1, infos).cores_left(2), -1);
  EXPECT_EQ(PeerTable(2, infos).cores_left(2), 2);
  EXPECT_FALSE(PeerTable(0, infos).oversubscribed());
  const auto limited = [&](std::uint64_t group, double cpus) {
    PeerInfo info = rank_on("pod", 1, 9, 0b11111111);
    info.cpu_group = group;
    info.group_cpus = cpus;
    return info;
  };
  EXPECT_EQ(PeerTable(0, {limited(7, 1.5), limited(7, 1.5)}).cores_left(1), -1) << "one group of both";
  EXPECT_EQ(PeerTable(0, {limited(7, 2), limited(8, 2)}).cores_left(1), 2) << "a group each";
  EXPECT_EQ(PeerTable(0, {limited(7, 1), limited(0, 0)}).cores_left(1), 6) << "one may use all";
  EXPECT_TRUE(PeerTable(0, {rank_on("a", 1, 9, 1), rank_on("b", 2, 9, 1)}).oversubscribed());
  EXPECT_FALSE(PeerTable(0, {rank_on("a", 1, 0, 1), rank_on("a", 1, 0, 1)}).oversubscribed()) << "nobody knows";
}

TEST(ProcessStates, OfOneThatHasGoneStaysSo) {
  for (int turn = 0; turn < 100; ++turn) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    std::vector<PeerInfo> infos(2, own_info());
    infos[1].pid = child;
    const PeerTable peers(0, infos);
    while (peers.process_state(1) != ProcessState::gone) std::this_thread::yield();
    std::thread parent([child, turn] {  // collects it during the other's check
      std::this_thread::sleep_for(std::chrono::microseconds(5 * turn));
      waitpid(child, nullptr, 0);
    });
    int others = 0;
    for (int look = 0; look < 200; ++look) others += peers.process_state(1) == ProcessState::gone ? 0 : 1;
    parent.join();
    ASSERT_EQ(others, 0) << "turn " << turn;
  }
}

}  // namespace
}  // namespace lockstep::comm
