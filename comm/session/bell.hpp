/// \file
/// One rank wakes others of its host by a number in memory that all of them map: they sleep until it changes.
///
/// NO LOST WAKE-UP. A sleeper counts itself before it looks at the number, and who changes it does so before looking
/// for sleepers, in one order for all (sequentially consistent): either the sleeper sees the change, or the other sees
/// the sleeper. The kernel looks once more when it lets the thread sleep (futex). With nobody asleep a ring is no call
/// of the kernel.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace lockstep::comm {

/// Zeros are a valid start: memory fresh from the system is a bell that has not rung.
class Bell {
 public:
  /// A reader of this value sees all that was written before the ring that set it.
  std::uint32_t value() const noexcept { return value_.load(std::memory_order_acquire); }
  /// Sets another value and wakes all that sleep. Of one rank only.
  void ring(std::uint32_t value) noexcept;
  /// Adds one and wakes all that sleep. From any rank.
  void ring() noexcept;
  /// Sleeps while the value is `seen`, for `ceiling` at most: who waits looks after its peers now and then. May return
  /// early. A sleeper that is killed leaves nothing behind but a call of the kernel in each ring.
  void sleep(std::uint32_t seen, std::chrono::microseconds ceiling) noexcept;

 private:
  void wake() noexcept;

  std::atomic<std::uint32_t> value_;
  std::atomic<std::uint32_t> sleepers_;
};

/// Sleeps until `word` differs from `seen`, somebody calls futex_wake_all, or the time is up. Works across processes.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::chrono::microseconds time) noexcept;
void futex_wake_all(std::atomic<std::uint32_t>& word) noexcept;

}  // namespace lockstep::comm
