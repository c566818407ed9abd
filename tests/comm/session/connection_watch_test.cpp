#include "comm/session/connection_watch.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
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
    // The watch does not use the loopback as an address for other hosts; the pretended hosts of this test need it.
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
  EXPECT_FALSE(lines[0]->is_dead(1));
  EXPECT_FALSE(lines[2]->is_dead(1));
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
    address.nonce += 1;  // as if another job's rank had the port now
  }
  first.join(addresses);
  second.join(addresses);
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(first.neighbours(), 0);
  EXPECT_EQ(second.neighbours(), 0);
}

/// A connection to a rank's port that sends nothing.
int silent_connection(const WatchAddress& to) {
  const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(to.port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return connection;
  close(connection);
  return -1;
}

TEST(ConnectionWatch, StrangersWhoHoldAllPlacesKeepNobodyOut) {
  ConnectionWatch first(0, 1), second(1, 2);
  std::vector<WatchAddress> addresses{first.address(), second.address()};
  for (auto& address : addresses) address.hosts = {WatchAddress::Host{.family = AF_INET, .bytes = {127, 0, 0, 1}}};
  first.join(addresses);
  std::vector<int> strangers;
  for (int i = 0; i < 200; ++i) strangers.push_back(silent_connection(addresses[0]));
  std::this_thread::sleep_for(100ms);
  second.join(addresses);
  EXPECT_TRUE(soon([&] { return second.neighbours() == 2; })) << first.neighbours() << second.neighbours();
  for (const int stranger : strangers) close(stranger);
}

TEST(ConnectionWatch, RanksOfOneMachineDoNotListen) {
  ConnectionWatch first(0, 7), second(1, 7);
  const std::vector<WatchAddress> addresses{first.address(), second.address()};
  const int before = silent_connection(addresses[0]);
  EXPECT_GE(before, 0);
  close(before);
  first.join(addresses);
  EXPECT_LT(silent_connection(addresses[0]), 0);
}

TEST(ConnectionWatch, KeepsToTheInterfacesThatOpenMpiMayUse) {
  ASSERT_EQ(setenv("OMPI_MCA_btl_tcp_if_include", "no-such-interface", 1), 0);
  ConnectionWatch first(0, 1), second(1, 2);
  ASSERT_EQ(unsetenv("OMPI_MCA_btl_tcp_if_include"), 0);
  EXPECT_EQ(first.address().hosts[0].family, 0);
  std::vector<WatchAddress> addresses{first.address(), second.address()};
  for (auto& address : addresses) address.hosts = {WatchAddress::Host{.family = AF_INET, .bytes = {127, 0, 0, 1}}};
  first.join(addresses);
  const int stranger = silent_connection(addresses[0]);
  char byte = 0;
  EXPECT_EQ(recv(stranger, &byte, 1, 0), 0) << "a connection by the loopback is closed";
  close(stranger);
}

/// Ranks that pretend to run on different machines: this process is the first one, and each other rank has a process.
class Job {
 public:
  explicit Job(int size) : own_(std::make_unique<ConnectionWatch>(0, 100)) {
    std::vector<WatchAddress> addresses{on_loopback(own_->address())};
    for (int rank = 1; rank < size; ++rank) {
      Child& child = children_.emplace_back();
      if (pipe(child.to) != 0 || pipe(child.from) != 0) throw std::runtime_error("no pipes");
      child.pid = fork();
      if (child.pid == 0) be(rank, size, child);
      addresses.emplace_back();
      if (read(child.from[0], &addresses.back(), sizeof(WatchAddress)) != sizeof(WatchAddress)) {
        throw std::runtime_error("a rank does not start");
      }
    }
    const auto bytes = static_cast<ssize_t>(addresses.size() * sizeof(WatchAddress));
    for (const Child& child : children_) {
      if (write(child.to[1], addresses.data(), static_cast<std::size_t>(bytes)) != bytes) std::abort();
    }
    own_->join(addresses);
    char ready = 0;
    for (const Child& child : children_) {
      if (read(child.from[0], &ready, 1) != 1) throw std::runtime_error("a rank has no neighbours");
    }
  }
  ~Job() {
    for (Child& child : children_) {
      kill(child.pid, SIGKILL);
      waitpid(child.pid, nullptr, 0);
      for (const int descriptor : {child.to[0], child.to[1], child.from[0], child.from[1]}) close(descriptor);
    }
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  ConnectionWatch& own() { return *own_; }
  void signal(int rank, int number) { kill(children_[static_cast<std::size_t>(rank - 1)].pid, number); }

 private:
  struct Child {
    pid_t pid = 0;
    int to[2] = {}, from[2] = {};
  };
  static WatchAddress on_loopback(WatchAddress address) {
    address.hosts = {WatchAddress::Host{.family = AF_INET, .bytes = {127, 0, 0, 1}}};
    return address;
  }
  [[noreturn]] static void be(int rank, int size, const Child& child) {
    ConnectionWatch line(rank, 100 + static_cast<std::uint64_t>(rank));
    const WatchAddress own = on_loopback(line.address());
    std::vector<WatchAddress> all(static_cast<std::size_t>(size));
    const auto bytes = static_cast<ssize_t>(all.size() * sizeof(WatchAddress));
    if (write(child.from[1], &own, sizeof(own)) != sizeof(own)) _exit(1);
    if (read(child.to[0], all.data(), static_cast<std::size_t>(bytes)) != bytes) _exit(1);
    line.join(all);
    if (!soon([&] { return line.neighbours() == 2; }) || write(child.from[1], "", 1) != 1) _exit(1);
    for (;;) pause();
  }

  std::unique_ptr<ConnectionWatch> own_;
  std::vector<Child> children_;
};

TEST(ConnectionWatch, AKilledRankIsMissed) {
  Job job(2);
  ConnectionWatch& line = job.own();
  EXPECT_TRUE(soon([&] { return line.neighbours() == 2; }));
  EXPECT_FALSE(line.is_dead(1));
  std::atomic<int> looks{0}, forgotten{0};
  const auto look = line.add_look([&] {
    EXPECT_TRUE(line.is_dead(1));
    if (++looks == 2) line.take_leave();  // the watching rank may leave in order
  });
  line.remove_look(line.add_look([&] { ++forgotten; }));
  job.signal(1, SIGKILL);
  EXPECT_TRUE(soon([&] { return line.is_dead(1); }));
  EXPECT_TRUE(soon([&] { return looks == 2; })) << "again and again until somebody takes leave";
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_EQ(looks, 2) << "and no more";
  EXPECT_EQ(forgotten, 0);
  line.remove_look(look);
}

TEST(ConnectionWatch, WhoComesBehindTheDeadIsWatchedInstead) {
  Job job(5);
  for (const int rank : {1, 2}) job.signal(rank, SIGKILL);  // no living rank is a neighbour of both
  EXPECT_TRUE(soon([&] { return job.own().is_dead(1) && job.own().is_dead(2); }));
  EXPECT_TRUE(soon([&] { return job.own().neighbours() == 2; }));
  EXPECT_FALSE(job.own().is_dead(3));
  EXPECT_FALSE(job.own().is_dead(4));
  job.signal(3, SIGKILL);
  EXPECT_TRUE(soon([&] { return job.own().is_dead(3); }));
  EXPECT_FALSE(job.own().is_dead(4));
}

TEST(ConnectionWatch, ARankThatIsStoppedIsNotDead) {
  for (const bool goes_on : {true, false}) {
    Job job(4);
    job.signal(2, SIGSTOP);
    job.signal(1, SIGKILL);
    EXPECT_TRUE(soon([&] { return job.own().is_dead(1); }));
    std::this_thread::sleep_for(500ms);
    EXPECT_FALSE(job.own().is_dead(2));
    if (goes_on) {
      job.signal(2, SIGCONT);
      EXPECT_TRUE(soon([&] { return job.own().neighbours() == 2; }));
      EXPECT_FALSE(job.own().is_dead(2));
    }
    job.signal(2, SIGKILL);
    EXPECT_TRUE(soon([&] { return job.own().is_dead(2); })) << goes_on;
    EXPECT_FALSE(job.own().is_dead(3));
  }
}

}  // namespace
}  // namespace lockstep::comm
