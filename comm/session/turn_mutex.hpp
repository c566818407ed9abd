/// \file
/// The mutex that the threads of a process take for each call of MPI.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace lockstep::comm {

/// A fair mutex: threads get it in the order of their calls. So a server with a steady flow of messages cannot starve
/// the worker beside it.
class TurnMutex {
 public:
  void lock() noexcept {
    const std::uint32_t turn = next_.fetch_add(1, std::memory_order_relaxed);
    while (now_.load(std::memory_order_acquire) != turn) std::this_thread::yield();
  }
  void unlock() noexcept { now_.fetch_add(1, std::memory_order_release); }

 private:
  std::atomic<std::uint32_t> next_{0}, now_{0};
};

}  // namespace lockstep::comm
