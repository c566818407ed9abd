#include "comm/session/bell.hpp"

#include <chrono>
#include <cstdint>
#include <ctime>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// Much longer than a test may take: only a ring ends such a sleep in time.
constexpr std::chrono::minutes kForEver{10};

/// Two bells in memory that a child process also maps.
struct Pair {
  Bell there, back;
};

std::shared_ptr<Pair> shared_pair() {
  void* const memory = mmap(nullptr, sizeof(Pair), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return {static_cast<Pair*>(memory), [](Pair* pair) { munmap(pair, sizeof(Pair)); }};
}

TEST(Bell, NoRingIsLostBetweenProcesses) {
  constexpr std::uint32_t kRings = 20'000;
  const auto pair = shared_pair();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    for (std::uint32_t i = 1; i <= kRings; ++i) {
      while (pair->there.value() != i) pair->there.sleep(i - 1, kForEver);
      pair->back.ring();
    }
    _exit(0);
  }
  for (std::uint32_t i = 1; i <= kRings; ++i) {
    pair->there.ring(i);
    while (pair->back.value() != i) pair->back.sleep(i - 1, kForEver);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Bell, SleepsWithoutTheProcessorUntilTheCeiling) {
  const auto pair = shared_pair();
  const auto start = Clock::now();
  const std::clock_t before = std::clock();
  pair->there.sleep(0, 200ms);
  EXPECT_GE(Clock::now() - start, 200ms);
  EXPECT_LT(std::clock() - before, CLOCKS_PER_SEC / 50);
}

TEST(Bell, WakesAllThatSleep) {
  const auto pair = shared_pair();
  std::vector<std::jthread> sleepers;
  for (int i = 0; i < 3; ++i) {
    sleepers.emplace_back([&] {
      while (pair->there.value() == 0) pair->there.sleep(0, kForEver);
    });
  }
  std::this_thread::sleep_for(20ms);
  pair->there.ring();
}

}  // namespace
}  // namespace lockstep::comm
