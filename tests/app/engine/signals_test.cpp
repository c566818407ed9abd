#include "app/engine/signals.hpp"

#include <csignal>
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::app {
namespace {

// Handlers belong to the process, so each test has a process of its own.
template <class Work>
void in_a_process(Work work, int exit_code) {
  EXPECT_EXIT(
      {
        work();
        std::exit(exit_code);
      },
      testing::ExitedWithCode(exit_code), "");
}

TEST(StopSignalsDeathTest, TellWhichCameFirst) {
  in_a_process(
      [] {
        const StopSignals signals;
        if (signals.stop_requested() || !signals.name().empty()) std::exit(1);
        for (const int signal : {SIGUSR1, SIGTERM, SIGINT}) std::raise(signal);
        if (!signals.stop_requested() || std::string(signals.name()) != "SIGUSR1") std::exit(2);
      },
      75);
}

TEST(StopSignalsDeathTest, TellOnceThatACheckpointIsWantedAndDoNotStop) {
  in_a_process(
      [] {
        StopSignals signals;
        if (signals.take_checkpoint_requests()) std::exit(1);
        std::raise(SIGUSR2);
        if (signals.stop_requested() || !signals.take_checkpoint_requests()) std::exit(2);
        if (signals.take_checkpoint_requests()) std::exit(3);
      },
      75);
}

TEST(StopSignalsDeathTest, ASecondInterruptEndsTheProcessWhateverCameBetween) {
  EXPECT_EXIT(
      {
        const StopSignals signals;
        for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGINT}) std::raise(signal);
        std::exit(0);
      },
      testing::ExitedWithCode(130), "");
}

TEST(StopSignalsDeathTest, ChangeNothingAnyMoreWhenAllWorkIsDone) {
  in_a_process(
      [] {
        StopSignals signals;
        std::raise(SIGINT);
        signals.ignore();
        for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) std::raise(signal);
      },
      75);
}

TEST(StopSignalsDeathTest, EndAProcessThatHasNothingToTidyUp) {
  EXPECT_EXIT(
      {
        StopSignals signals;
        signals.release();
        std::raise(SIGUSR1);
        std::exit(0);
      },
      testing::KilledBySignal(SIGUSR1), "");
}

TEST(StopSignalsDeathTest, ThatCameBeforeTheyWereReleasedCount) {
  EXPECT_EXIT(
      {
        StopSignals signals;
        std::raise(SIGTERM);
        signals.release();
        std::exit(0);
      },
      testing::KilledBySignal(SIGTERM), "");
}

TEST(StopSignalsDeathTest, ArriveWhereTheyWereBlockedByTheStarter) {
  in_a_process(
      [] {
        sigset_t blocked;
        sigemptyset(&blocked);
        sigaddset(&blocked, SIGTERM);
        sigprocmask(SIG_BLOCK, &blocked, nullptr);
        std::raise(SIGTERM);
        const StopSignals signals;
        if (!signals.stop_requested()) std::exit(1);
      },
      75);
}

}  // namespace
}  // namespace lockstep::app
