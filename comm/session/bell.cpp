#include "comm/session/bell.hpp"

#include <climits>
#include <ctime>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lockstep::comm {

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::chrono::microseconds time) noexcept {
  const timespec limit{.tv_sec = time.count() / 1'000'000, .tv_nsec = time.count() % 1'000'000 * 1000};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0);  // any return is a reason to look again
}

void futex_wake_all(std::atomic<std::uint32_t>& word) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Bell::wake() noexcept {
  if (sleepers_.load(std::memory_order_seq_cst) != 0) futex_wake_all(value_);
}

void Bell::ring(std::uint32_t value) noexcept {
  value_.store(value, std::memory_order_seq_cst);
  wake();
}

void Bell::ring() noexcept {
  value_.fetch_add(1, std::memory_order_seq_cst);
  wake();
}

void Bell::sleep(std::uint32_t seen, std::chrono::microseconds ceiling) noexcept {
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  if (value_.load(std::memory_order_seq_cst) == seen) futex_wait(value_, seen, ceiling);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace lockstep::comm
