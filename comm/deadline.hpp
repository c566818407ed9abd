/// \file
/// How long a rank waits for its peers, and who is to blame when the time is up.
#pragma once

#include <chrono>
#include <span>
#include <vector>

namespace lockstep::comm {

/// The time a wait has left. It is charged in slices, and a slice counts as one second at most: a process that was
/// itself stopped or whose machine slept does not come back, see an old clock and blame its peers.
class Patience {
 public:
  /// A peer in a declared long operation is waited for this many deadlines before it counts as stuck.
  static constexpr double kLongOperationFactor = 30;

  explicit Patience(double deadline_seconds);

  /// Charges the time since the last call (call it at least once a second); true when nothing is left. `excused`: the
  /// peer waited for is in a declared long operation and shows signs of life.
  bool exhausted(bool excused);
  /// Charged seconds, excused ones left out.
  double waited() const noexcept { return charged_; }

 private:
  std::chrono::steady_clock::time_point last_;
  double deadline_;
  double charged_ = 0;
  double excused_ = 0;
};

/// Ranks this rank has given up. The lowest rank that nobody suspects speaks for the job.
class Suspects {
 public:
  void mark(std::span<const int> ranks) { ranks_.insert(ranks_.end(), ranks.begin(), ranks.end()); }
  bool is_lowest_survivor(int rank) const;

 private:
  std::vector<int> ranks_;
};

}  // namespace lockstep::comm
