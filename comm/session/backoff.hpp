/// \file
/// Waits by polling: first at full speed, then with yields of the core between polls, then with sleeps. A rank that
/// others can wake sleeps on a Bell (bell.hpp) in the last stage.
///
/// FEW YIELDS. On an uncontended core a yield returns at once, and polls continue for the time that the pace sets. On a
/// contended core a yield may give away more than the turn of this thread: since Linux 6.12 it gives away the turn of
/// its whole session or container. It then returns after a turn of every other one, for example after 16 ms beside ten
/// busy processes on two cores. So a wait yields a contended core at most kMaxLent times and then sleeps. A thread that
/// has lost its turn does not yield for ten times as long, in this wait and in later ones. A sleeping thread keeps its
/// claim on the core and gets it soon after it wakes.
///
/// SLEEPS grow with the wait, up to 1/32 of it or the ceiling: they delay the result by at most 3 %.
#pragma once

#include <chrono>

namespace lockstep::comm {

class Backoff {
 public:
  /// `spin`: time of polls at full speed. `yield`: longest time with yields after that. `sleep`: length of the first
  /// sleep. `ceiling`: length of the longest sleep; zero: all sleeps have the length of the first.
  struct Pace {
    std::chrono::microseconds spin, yield, sleep, ceiling = {};
  };
  /// Yields of a contended core in one wait.
  static constexpr int kMaxLent = 4;

  explicit Backoff(Pace pace) noexcept : pace_(pace) {}

  /// Call it after a poll without result. Returns true if the next poll should follow at once; may have yielded.
  bool stays_awake() noexcept;
  /// Call it after a poll without result: yields or sleeps, if necessary.
  void pause();
  /// Call it after progress: the next pause starts a new wait.
  void reset() noexcept { waits_ = false; }

 private:
  using Clock = std::chrono::steady_clock;

  Pace pace_;
  bool waits_ = false;
  int lent_ = 0;
  Clock::time_point start_{};  ///< beginning of the wait
  Clock::duration waited_{};   ///< length of the wait up to the last poll
};

}  // namespace lockstep::comm
