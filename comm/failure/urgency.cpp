#include "comm/failure/urgency.hpp"

namespace lockstep::comm {

void Urgency::set(bool urgent) noexcept {
  {
    const std::lock_guard lock(mutex_);  // otherwise a sleeper might miss it between its check and its sleep
    urgent_.store(urgent, std::memory_order_relaxed);
  }
  if (urgent) gets_urgent_.notify_all();
}

void Urgency::sleep_unless_urgent(std::chrono::microseconds time) const {
  std::unique_lock lock(mutex_);
  gets_urgent_.wait_for(lock, time, [this] { return urgent(); });
}

}  // namespace lockstep::comm
