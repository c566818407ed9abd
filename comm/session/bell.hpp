/// \file
/// A number in shared memory on which ranks of one host sleep until another rank changes it.
///
/// NO LOST WAKE-UP. A sleeper increments the count of sleepers before it reads the number. A ringer changes the number
/// before it reads the count. These operations have one order for all threads (sequentially consistent), so the sleeper
/// sees the change or the ringer sees the sleeper. The kernel compares the number again before the thread sleeps
/// (futex). Without sleepers a ring makes no system call.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace lockstep::comm {

/// Zeros are a valid start: zeroed memory is a bell that has not rung.
class Bell {
 public:
  /// A reader of this value sees everything that was written before the ring that set it.
  std::uint32_t value() const noexcept { return value_.load(std::memory_order_acquire); }
  /// Sets the value and wakes all sleepers. Only one rank may call it.
  void ring(std::uint32_t value) noexcept;
  /// Adds one and wakes all sleepers. Any rank may call it.
  void ring() noexcept;
  /// Sleeps while the value is `seen`, for at most `ceiling`, so that the caller can check its peers from time to time.
  /// May return early. After the death of a sleeper each ring makes a system call, nothing worse.
  void sleep(std::uint32_t seen, std::chrono::microseconds ceiling) noexcept;

 private:
  void wake() noexcept;

  std::atomic<std::uint32_t> value_;
  std::atomic<std::uint32_t> sleepers_;
};

/// Sleeps until `word` differs from `seen`, another thread calls futex_wake_all, or `time` is over. Works across
/// processes.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::chrono::microseconds time) noexcept;
void futex_wake_all(std::atomic<std::uint32_t>& word) noexcept;

}  // namespace lockstep::comm
