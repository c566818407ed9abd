#include "comm/session/backoff.hpp"

#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>
#include <sched.h>

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// Both threads of a test share one core.
class OneCore {
 public:
  OneCore() {
    sched_getaffinity(0, sizeof(before_), &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core) {
      if (CPU_ISSET(core, &before_)) CPU_SET(core, &one);
    }
    sched_setaffinity(0, sizeof(one), &one);
  }
  ~OneCore() { sched_setaffinity(0, sizeof(before_), &before_); }
  OneCore(const OneCore&) = delete;
  OneCore& operator=(const OneCore&) = delete;

 private:
  cpu_set_t before_{};
};

/// Computes all the time.
class BusyThread {
 public:
  ~BusyThread() { stop_ = true; }

 private:
  std::atomic<bool> stop_ = false;
  std::jthread thread_{[this] {
    while (!stop_) ++turns_;
  }};
  std::atomic<long> turns_ = 0;
};

TEST(Backoff, GoesToSleepSoonWhereOthersWantTheCore) {
  const OneCore core;
  const BusyThread other;
  std::this_thread::sleep_for(50ms);  // it runs
  const auto start = Clock::now();
  Backoff backoff({.spin = 0s, .yield = 60s, .sleep = 1ms});
  while (backoff.stays_awake()) {
  }
  EXPECT_LT(Clock::now() - start, 30s);
}

TEST(Backoff, DoesNotYieldAgainAfterAYieldThatHasCostATurn) {
  const OneCore core;
  const BusyThread other;
  std::this_thread::sleep_for(50ms);
  bool without = false;  // some wait is to begin without a yield
  for (const auto end = Clock::now() + 20s; !without && Clock::now() < end;) {
    Backoff backoff({.spin = 0s, .yield = 60s, .sleep = 1ms});
    without = !backoff.stays_awake();
  }
  EXPECT_TRUE(without);
}

TEST(Backoff, SpinsAsLongAsThePaceSays) {
  Backoff backoff({.spin = 20ms, .yield = 0s, .sleep = 1ms});
  const auto start = Clock::now();
  while (backoff.stays_awake()) {
  }
  EXPECT_GE(Clock::now() - start, 20ms);
}

TEST(Backoff, SleepsGrowWithTheWaitUpToTheCeiling) {
  const auto sleeps_in = [](Backoff::Pace pace) {
    Backoff backoff(pace);
    int sleeps = 0;
    for (const auto end = Clock::now() + 400ms; Clock::now() < end; ++sleeps) backoff.pause();
    return sleeps;
  };
  EXPECT_LE(sleeps_in({.spin = 0s, .yield = 0s, .sleep = 100us, .ceiling = 4ms}), 300);
  EXPECT_GE(sleeps_in({.spin = 0s, .yield = 0s, .sleep = 100us, .ceiling = 4ms}), 10);
}

TEST(Backoff, ProgressBeginsAnotherWait) {
  Backoff backoff({.spin = 5ms, .yield = 0s, .sleep = 1ms});
  while (backoff.stays_awake()) {
  }
  backoff.reset();
  EXPECT_TRUE(backoff.stays_awake());
}

}  // namespace
}  // namespace lockstep::comm
