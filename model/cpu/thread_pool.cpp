#include "model/cpu/thread_pool.hpp"

namespace lockstep::model::cpu {

namespace {

/// Number of spins, some microseconds: longer than the gap between two loops of a step, shorter than other waits.
constexpr int kSpins = 4000;

void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Returns once `value` is no longer `old`.
void wait_while(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (value.load(std::memory_order_acquire) != old) return;
    relax();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  helpers_.reserve(static_cast<std::size_t>(threads > 1 ? threads - 1 : 0));
  for (int i = 1; i < threads; ++i) {
    helpers_.emplace_back([this, i] { serve(static_cast<std::size_t>(i)); });
  }
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
}

void ThreadPool::start(Call call, const void* context) {
  call_ = call;
  context_ = context;
  busy_.store(static_cast<std::uint32_t>(helpers_.size()), std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
}

void ThreadPool::finish() {
  for (std::uint32_t busy = busy_.load(std::memory_order_acquire); busy != 0;
       busy = busy_.load(std::memory_order_acquire)) {
    wait_while(busy_, busy);
  }
}

void ThreadPool::serve(std::size_t part) {
  for (std::uint32_t seen = 0;;) {
    wait_while(round_, seen);
    if (stop_) return;
    ++seen;
    call_(context_, part);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
  }
}

}  // namespace lockstep::model::cpu
