#include "comm/session/deadline.hpp"

#include <algorithm>
#include <fstream>
#include <utility>

namespace lockstep::comm {

namespace {

/// Seconds in which this thread was ready to run but had no core; nullopt if the kernel does not count them.
std::optional<double> seconds_without_core() {
  double ran = 0, waited = 0;  // nanoseconds
  std::ifstream file("/proc/thread-self/schedstat");
  if (file >> ran >> waited) return waited * 1e-9;
  return std::nullopt;
}

}  // namespace

Patience::Patience(double deadline_seconds, double excuse_seconds)
    : last_(std::chrono::steady_clock::now()),
      deadline_(deadline_seconds),
      most_excused_(std::max(kLongOperationFactor * deadline_seconds, excuse_seconds)) {}

bool Patience::exhausted(bool excused) {
  const auto now = std::chrono::steady_clock::now();
  const double slice = slice_of(std::chrono::duration<double>(now - last_).count());
  last_ = now;
  if (excused && excused_ < most_excused_) {
    excused_ += slice;
  } else {
    charged_ += slice;
  }
  return charged_ >= deadline_;
}

double Patience::slice_of(double elapsed) {
  constexpr double kMax = 1.0, kShort = 0.05;  // the file is not read for short slices
  if (elapsed < kShort) return elapsed;
  const std::optional<double> before = std::exchange(without_core_, seconds_without_core());
  const double without_core = before && without_core_ ? *without_core_ - *before : 0;
  return std::min(elapsed, kMax + without_core);
}

double precedence_seconds(bool speaks_first, int rank) { return speaks_first ? 0 : 1.0 + 0.5 * std::min(rank, 10); }

void Suspects::mark(std::span<const int> ranks) {
  const std::lock_guard lock(mutex_);
  ranks_.insert(ranks_.end(), ranks.begin(), ranks.end());
}

void Suspects::mark_dead(int rank) {
  mark(std::span(&rank, 1));
  int none = -1;
  dead_.compare_exchange_strong(none, rank);
}

bool Suspects::suspected(int rank) const { return std::find(ranks_.begin(), ranks_.end(), rank) != ranks_.end(); }

bool Suspects::speaks_first(int rank, int size) const {
  const std::lock_guard lock(mutex_);
  if (dead_ >= 0) {
    int witness = dead_;
    do {
      witness = (witness + size - 1) % size;
    } while (suspected(witness) && witness != dead_);
    return rank == witness;
  }
  int suspects = 0;
  for (int other = 0; other < size; ++other) {
    if (suspected(other)) {
      ++suspects;
    } else if (other < rank) {
      return false;
    }
  }
  return 2 * suspects < size || (2 * suspects == size && rank == 0);
}

}  // namespace lockstep::comm
