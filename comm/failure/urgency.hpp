/// \file
/// States if a thread waits for a collective to complete.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace lockstep::comm {

/// If urgent, waiting threads poll for messages at full speed; otherwise they leave the core to computation between
/// polls. Urgent at the start. Any thread may use it.
class Urgency {
 public:
  void set(bool urgent) noexcept;
  bool urgent() const noexcept { return urgent_.load(std::memory_order_relaxed); }
  /// Leaves the core for this time, or until it gets urgent.
  void sleep_unless_urgent(std::chrono::microseconds time) const;

 private:
  std::atomic<bool> urgent_{true};
  mutable std::mutex mutex_;
  mutable std::condition_variable gets_urgent_;
};

}  // namespace lockstep::comm
