#include "comm/session/backoff.hpp"

#include <algorithm>
#include <thread>

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;

/// A shorter yield let nobody else run: the call alone takes less than 1 us.
constexpr std::chrono::microseconds kUncontested{3};
/// A longer yield cost this thread its turn.
constexpr std::chrono::milliseconds kTurn{1};
constexpr int kWithoutYields = 10;  ///< length of the time without yields, in such yields

/// The kernel schedules each thread by core; a lost turn therefore outlives the wait.
thread_local Clock::time_point no_yield_before{};

}  // namespace

bool Backoff::stays_awake() noexcept {
  const auto now = Clock::now();
  if (!waits_) start_ = now, lent_ = 0;
  waits_ = true;
  waited_ = now - start_;
  if (waited_ < pace_.spin) return true;
  if (waited_ >= pace_.spin + pace_.yield || lent_ >= kMaxLent || now < no_yield_before) return false;
  std::this_thread::yield();
  const auto back = Clock::now();
  if (back - now >= kUncontested) ++lent_;
  if (back - now >= kTurn) no_yield_before = back + kWithoutYields * (back - now);
  return true;
}

void Backoff::pause() {
  constexpr int kShare = 32;
  if (stays_awake()) return;
  const Clock::duration first = pace_.sleep, longest = std::max(pace_.sleep, pace_.ceiling);
  std::this_thread::sleep_for(std::clamp(waited_ / kShare, first, longest));
}

}  // namespace lockstep::comm
