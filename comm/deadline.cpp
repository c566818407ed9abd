#include "comm/deadline.hpp"

#include <algorithm>

namespace lockstep::comm {

Patience::Patience(double deadline_seconds) : last_(std::chrono::steady_clock::now()), deadline_(deadline_seconds) {}

bool Patience::exhausted(bool excused) {
  const auto now = std::chrono::steady_clock::now();
  const double slice = std::min(std::chrono::duration<double>(now - last_).count(), 1.0);
  last_ = now;
  if (excused && excused_ < kLongOperationFactor * deadline_) {
    excused_ += slice;
  } else {
    charged_ += slice;
  }
  return charged_ >= deadline_;
}

bool Suspects::is_lowest_survivor(int rank) const {
  for (int lower = 0; lower < rank; ++lower) {
    if (std::find(ranks_.begin(), ranks_.end(), lower) == ranks_.end()) return false;
  }
  return true;
}

}  // namespace lockstep::comm
