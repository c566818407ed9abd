#include "comm/session/connection_watch.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;

/// Ranks of one process, each as if on a machine of its own.
std::vector<std::unique_ptr<ConnectionWatch>> ranks_on_machines(int size) {
  std::vector<std::unique_ptr<ConnectionWatch>> lines;
  std::vector<WatchAddress> addresses;
  for (int rank = 0; rank < size; ++rank) {
    lines.push_back(std::make_unique<ConnectionWatch>(rank, 100 + static_cast<std::uint64_t>(rank)));
    addresses.push_back(lines.back()->address());
    // The loopback is no address for other hosts, but for those of this test.
    addresses.back().hosts = {WatchAddress::Host{.family = AF_INET, .bytes = {127, 0, 0, 1}}};
  }
  for (auto& line : lines) line->join(addresses);
  return lines;
}

template <class Condition>
bool soon(Condition condition) {
  for (int i = 0; i < 1000 && !condition(); ++i) std::this_thread::sleep_for(10ms);
  return condition();
}

bool connected(const std::vector<std::unique_ptr<ConnectionWatch>>& lines) {
  return std::all_of(lines.begin(), lines.end(), [](const auto& line) { return line->neighbours() == 2; });
}

TEST(ConnectionWatch, ConnectsEveryRankWithBothItsNeighbours) {
  for (const int size : {2, 3, 5}) {
    const auto lines = ranks_on_machines(size);
    EXPECT_TRUE(soon([&] { return connected(lines); })) << size << " ranks";
  }
}

TEST(ConnectionWatch, ARankThatTakesLeaveHasNotDied) {
  auto lines = ranks_on_machines(3);
  ASSERT_TRUE(soon([&] { return connected(lines); }));
  lines[1].reset();
  EXPECT_TRUE(soon([&] { return lines[0]->neighbours() == 1 && lines[2]->neighbours() == 1; }));
  EXPECT_EQ(lines[0]->dead_rank(), -1);
  EXPECT_EQ(lines[2]->dead_rank(), -1);
}

TEST(ConnectionWatch, RanksOfOneMachineNeedNone) {
  ConnectionWatch first(0, 7), second(1, 7);
  const std::vector<WatchAddress> addresses{first.address(), second.address()};
  first.join(addresses);
  second.join(addresses);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(first.neighbours(), 0);
}

TEST(ConnectionWatch, StrangersAreNotTakenIn) {
  ConnectionWatch first(0, 1), second(1, 2);
  std::vector<WatchAddress> addresses{first.address(), second.address()};
  for (auto& address : addresses) {
    address.hosts = {WatchAddress::Host{.family = AF_INET, .bytes = {127, 0, 0, 1}}};
    address.nonce += 1;  // as if another job's rank had the port by now
  }
  first.join(addresses);
  second.join(addresses);
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(first.neighbours(), 0);
  EXPECT_EQ(second.neighbours(), 0);
}

TEST(ConnectionWatch, AKilledRankIsMissed) {
  int to_child[2], to_parent[2];
  ASSERT_EQ(pipe(to_child), 0);
  ASSERT_EQ(pipe(to_parent), 0);
  const auto on_loopback = [](WatchAddress address) {
    address.hosts = {WatchAddress::Host{.family = AF_INET, .bytes = {127, 0, 0, 1}}};
    return address;
  };
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ConnectionWatch line(1, 2);
    const WatchAddress own = on_loopback(line.address());
    std::array<WatchAddress, 2> all{{{}, own}};
    if (write(to_parent[1], &own, sizeof(own)) != sizeof(own) || read(to_child[0], all.data(), sizeof(own)) < 0)
      _exit(1);
    line.join(all);
    for (;;) pause();
  }
  ConnectionWatch line(0, 1);
  std::array<WatchAddress, 2> all{{on_loopback(line.address()), {}}};
  ASSERT_EQ(read(to_parent[0], &all[1], sizeof(all[1])), static_cast<ssize_t>(sizeof(all[1])));
  ASSERT_EQ(write(to_child[1], all.data(), sizeof(all[0])), static_cast<ssize_t>(sizeof(all[0])));
  line.join(all);
  EXPECT_TRUE(soon([&] { return line.neighbours() == 2; }));
  EXPECT_EQ(line.dead_rank(), -1);
  std::atomic<int> looks{0}, forgotten{0};
  const auto look = line.add_look([&](int dead) {
    EXPECT_EQ(dead, 1);
    if (++looks == 2) line.take_leave();  // who looks may end the process in order
  });
  line.remove_look(line.add_look([&](int) { ++forgotten; }));
  kill(child, SIGKILL);
  EXPECT_TRUE(soon([&] { return line.dead_rank() == 1; }));
  EXPECT_TRUE(soon([&] { return looks == 2; })) << "again and again until somebody takes leave";
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_EQ(looks, 2) << "and no more";
  EXPECT_EQ(forgotten, 0);
  line.remove_look(look);
  waitpid(child, nullptr, 0);
  for (const int descriptor : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) close(descriptor);
}

}  // namespace
}  // namespace lockstep::comm
