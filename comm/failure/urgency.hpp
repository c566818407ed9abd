/// \file
/// Whether somebody stands still until a collective is done.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace lockstep::comm {

/// While it is urgent, who waits for messages polls at full speed; else it leaves the core to computation between its
/// looks. Urgent at the start. From any thread.
class Urgency {
 public:
  void set(bool urgent) noexcept;
  bool urgent() const noexcept { return urgent_.load(std::memory_order_relaxed); }
  /// Leaves the core for so long, or until it gets urgent.
  void sleep_unless_urgent(std::chrono::microseconds time) const;

 private:
  std::atomic<bool> urgent_{true};
  mutable std::mutex mutex_;
  mutable std::condition_variable gets_urgent_;
};

}  // namespace lockstep::comm
