/// \file
/// Waiting by polling: first at full speed, then yielding the core between polls, then sleeping between them.
#pragma once

#include <chrono>
#include <thread>

namespace lockstep::comm {

class Backoff {
 public:
  /// Duration of polling at full speed, duration of yielding after that, and length of each sleep.
  struct Pace {
    std::chrono::microseconds spin, yield, sleep;
  };

  explicit Backoff(Pace pace) noexcept : pace_(pace) {}

  /// For a poll without result. Returns true if the next poll should follow without sleep; may have yielded.
  bool stays_awake() noexcept {
    const auto now = std::chrono::steady_clock::now();
    if (!waits_) start_ = now;
    waits_ = true;
    if (now - start_ < pace_.spin) return true;
    if (now - start_ >= pace_.spin + pace_.yield) return false;
    std::this_thread::yield();
    return true;
  }
  /// For a poll without result: sleeps if stays_awake() is false.
  void pause() {
    if (!stays_awake()) std::this_thread::sleep_for(pace_.sleep);
  }
  /// For progress: the next pause starts from the beginning.
  void reset() noexcept { waits_ = false; }

 private:
  Pace pace_;
  bool waits_ = false;
  std::chrono::steady_clock::time_point start_{};  ///< start of the wait
};

}  // namespace lockstep::comm
