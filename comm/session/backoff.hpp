/// \file
/// The one way in which a rank waits by polling: at full speed first, then lending its core to others between polls,
/// then asleep between them. Who can be woken sleeps on a Bell (bell.hpp) instead of the last.
///
/// FEW YIELDS. On a core that nobody else wants a yield returns at once, and polls go on for as long as the pace says.
/// On a contended core the yield may give away more than this thread's turn: since Linux 6.12 that of its whole
/// session or container, and it returns when every other one has had its turn, 16 ms later beside ten busy processes on
/// two cores. A wait therefore lends its core kMaxLent times and then sleeps. A thread that has waited for its turn
/// does without yields for ten times as long, in this wait and the next ones. A sleeper keeps its claim on the core and
/// gets it soon after it wakes.
///
/// SLEEPS grow with the wait, to a 32nd of it at most, up to the ceiling: they delay what is awaited by 3 %.
#pragma once

#include <chrono>

namespace lockstep::comm {

class Backoff {
 public:
  /// Times of a wait: at full speed, after that yielding at most, and the length of the sleeps then: the first, and the
  /// longest (none: all are as the first).
  struct Pace {
    std::chrono::microseconds spin, yield, sleep, ceiling = {};
  };
  /// Yields in a wait that find others on the core.
  static constexpr int kMaxLent = 4;

  explicit Backoff(Pace pace) noexcept : pace_(pace) {}

  /// After a poll without result: true while polls are to follow each other without sleep; may have yielded.
  bool stays_awake() noexcept;
  /// After a poll without result.
  void pause();
  /// There was progress: the next pause is a first one.
  void reset() noexcept { waits_ = false; }

 private:
  using Clock = std::chrono::steady_clock;

  Pace pace_;
  bool waits_ = false;
  int lent_ = 0;
  Clock::time_point start_{};  ///< beginning of the wait
  Clock::duration waited_{};   ///< up to the last poll
};

}  // namespace lockstep::comm
