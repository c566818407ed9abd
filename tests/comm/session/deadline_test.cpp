#include "comm/session/deadline.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>

#include <gtest/gtest.h>
#include <sched.h>

#include "comm/session/peers.hpp"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;

TEST(Patience, EndsAfterTheDeadline) {
  Patience patience(0.1);
  EXPECT_FALSE(patience.exhausted(false));
  std::this_thread::sleep_for(120ms);
  EXPECT_TRUE(patience.exhausted(false));
  EXPECT_GE(patience.waited(), 0.1);
}

TEST(Patience, ExcusesALongOperationButNotForEver) {
  Patience patience(0.01);
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(patience.exhausted(true));
  for (int i = 0; i < 6; ++i) {
    std::this_thread::sleep_for(50ms);
    patience.exhausted(true);
  }
  std::this_thread::sleep_for(20ms);
  EXPECT_TRUE(patience.exhausted(true));  // after 30 deadlines
}

TEST(Patience, DoesNotBlamePeersForItsOwnSleep) {
  Patience patience(1.2);
  std::this_thread::sleep_for(1500ms);  // as if this process had been stopped
  EXPECT_FALSE(patience.exhausted(false));
  EXPECT_LE(patience.waited(), 1.0);
}

void use_processor(std::chrono::nanoseconds time) {
  const auto had = [] {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  };
  const auto end = had() + time;
  while (had() < end) {
  }
}

// Imitates a rank on a machine whose other processes leave it one turn in seconds.
TEST(Patience, CountsSecondsWithoutACore) {
  cpu_set_t before{}, one;
  sched_getaffinity(0, sizeof(before), &before);
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core) {
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  }
  std::atomic<bool> over = false;
  const auto compete = [&] {
    sched_setaffinity(0, sizeof(one), &one);
    while (!over) {
    }
  };
  double elapsed = 0, first_look = 0, waited = 0;
  {
    const std::jthread other(compete), another(compete);
    const std::jthread rank([&] {
      const sched_param none{};
      sched_setaffinity(0, sizeof(one), &one);
      sched_setscheduler(0, SCHED_IDLE, &none);
      const auto start = std::chrono::steady_clock::now();
      Patience patience(1000);
      while (elapsed < 8) {
        use_processor(3ms);
        patience.exhausted(false);
        elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        if (first_look == 0) first_look = elapsed;  // there is nothing to compare its count with
      }
      waited = patience.waited();
      over = true;
    });
  }
  EXPECT_GE(waited + first_look, 0.8 * elapsed) << "charged " << waited << " of " << elapsed << " s";
  EXPECT_LE(waited, elapsed);
}

TEST(Suspects, TheLowestRankThatNobodySuspectsSpeaks) {
  Suspects suspects;
  EXPECT_TRUE(suspects.speaks_first(0, 5));
  EXPECT_FALSE(suspects.speaks_first(1, 5));
  suspects.mark(std::array{0, 2});
  EXPECT_TRUE(suspects.speaks_first(1, 5));
  EXPECT_FALSE(suspects.speaks_first(3, 5));
}

TEST(Suspects, WhoHearsTheFewerIsTheOneThatIsCutOff) {
  Suspects suspects;
  suspects.mark(std::array{1, 2});
  EXPECT_TRUE(suspects.speaks_first(0, 5));
  EXPECT_TRUE(suspects.speaks_first(0, 4)) << "two halves";
  EXPECT_FALSE(suspects.speaks_first(0, 3));
  Suspects other_half;
  other_half.mark(std::array{0, 1});
  EXPECT_FALSE(other_half.speaks_first(2, 4));
  EXPECT_TRUE(other_half.speaks_first(2, 5));
}

TEST(Suspects, OfTheDeadTheRankBeforeSpeaks) {
  Suspects suspects;
  suspects.mark_dead(2);
  EXPECT_TRUE(suspects.speaks_first(1, 4));
  EXPECT_FALSE(suspects.speaks_first(0, 4));
  EXPECT_FALSE(suspects.speaks_first(3, 4));
  suspects.mark_dead(1);
  EXPECT_TRUE(suspects.speaks_first(0, 4));
  Suspects of_the_first;
  of_the_first.mark_dead(0);
  EXPECT_TRUE(of_the_first.speaks_first(3, 4));
  EXPECT_TRUE(of_the_first.speaks_first(1, 2));
}

TEST(PeerTable, SeesItsOwnProcess) {
  PeerInfo here = own_info(), elsewhere = own_info();
  elsewhere.machine += 1;
  PeerInfo dead = here;
  dead.pid = 0x3fffffff;  // above any kernel's pid_max
  const PeerTable peers(0, {here, elsewhere, dead});
  EXPECT_TRUE(peers.same_machine(0));
  EXPECT_FALSE(peers.same_machine(1));
  EXPECT_EQ(peers.process_state(0), ProcessState::running);
  EXPECT_EQ(peers.process_state(1), ProcessState::out_of_sight);
  EXPECT_EQ(peers.process_state(2), ProcessState::gone);
  EXPECT_EQ(peers.describe(2), std::string("rank 2 (host ") + here.host.data() + ", pid 1073741823)");
}

TEST(PeerTable, ComparesRanksWithTheCoresTheyShare) {
  PeerInfo first = own_info();
  first.cores = {1};
  PeerInfo second = first;
  EXPECT_TRUE(PeerTable(0, {first, second}).oversubscribed());
  second.cores = {2};
  EXPECT_FALSE(PeerTable(0, {first, second}).oversubscribed());
  second.cores = {1};
  second.kernel += 1;  // core 0 of another machine
  EXPECT_FALSE(PeerTable(0, {first, second}).oversubscribed());
}

TEST(SecondsText, HasNoNeedlessDigits) {
  EXPECT_EQ(seconds_text(60.04), "60");
  EXPECT_EQ(seconds_text(3.001), "3");
  EXPECT_EQ(seconds_text(0.52), "0.5");
}

}  // namespace
}  // namespace lockstep::comm
