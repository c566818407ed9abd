/// \file
/// The one way in which a rank waits by polling: at full speed first, then lending its core to others between polls,
/// then asleep between them.
#pragma once

#include <chrono>
#include <thread>

namespace lockstep::comm {

class Backoff {
 public:
  /// How long at full speed, how long after that yielding, and how long each sleep is then.
  struct Pace {
    std::chrono::microseconds spin, yield, sleep;
  };

  explicit Backoff(Pace pace) noexcept : pace_(pace) {}

  /// After a poll without result: true while polls are to follow each other without sleep; may have yielded.
  bool stays_awake() noexcept {
    const auto now = std::chrono::steady_clock::now();
    if (!waits_) start_ = now;
    waits_ = true;
    if (now - start_ < pace_.spin) return true;
    if (now - start_ >= pace_.spin + pace_.yield) return false;
    std::this_thread::yield();
    return true;
  }
  /// After a poll without result.
  void pause() {
    if (!stays_awake()) std::this_thread::sleep_for(pace_.sleep);
  }
  /// There was progress: the next pause is a first one.
  void reset() noexcept { waits_ = false; }

 private:
  Pace pace_;
  bool waits_ = false;
  std::chrono::steady_clock::time_point start_{};  ///< of the wait
};

}  // namespace lockstep::comm
