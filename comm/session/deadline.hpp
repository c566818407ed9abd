/// \file
/// Patience of a rank with its peers, and the culprit after the deadline.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace lockstep::comm {

/// The time a wait has left. It is charged in slices, and a slice counts as one second at most: a process that was
/// itself stopped or whose machine slept does not come back, see an old clock and blame its peers. Seconds in which the
/// thread wanted to run and got no core are charged in full, where the kernel counts them: on a busy machine a peer
/// that does not come is named as soon as on a quiet one. So look for what is awaited before you ask.
class Patience {
 public:
  /// Patience with a peer in a declared long operation, in deadlines; after that it counts as stuck.
  static constexpr double kLongOperationFactor = 30;

  /// `excuse_seconds`: lower limit of the patience with a long operation.
  explicit Patience(double deadline_seconds, double excuse_seconds = 0);

  /// Charges the time since the last call (call it at least once a second); true if nothing is left. `excused`: the
  /// awaited peer is in a declared long operation and sends heartbeats.
  bool exhausted(bool excused);
  /// Charged seconds without excused ones.
  double waited() const noexcept { return charged_; }

 private:
  /// Those of the `elapsed` seconds since the last call that count.
  double slice_of(double elapsed);

  std::chrono::steady_clock::time_point last_;
  std::optional<double> without_core_;  ///< seconds without a core, by the last look; none before the first
  double deadline_;
  double most_excused_;
  double charged_ = 0;
  double excused_ = 0;
};

/// Time for which `rank` leaves it to others to report the failure first (they end the job, which takes a launcher a
/// second or two); 0 if it `speaks_first`.
double precedence_seconds(bool speaks_first, int rank);

/// Ranks that this rank has given up. Thread-safe: one thread waits for messages, another watches connections.
class Suspects {
 public:
  /// Marks silent ranks.
  void mark(std::span<const int> ranks);
  /// Marks a rank whose process has died. Only some ranks can see such a death.
  void mark_dead(int rank);
  /// True if `rank` of `size` reports for the job. For silent ranks: the lowest rank that it does not suspect itself,
  /// unless it suspects more than half of all, because then it is the one that is cut off. If the halves are equal,
  /// the half of rank 0 reports. For dead ranks: the living rank before the dead one, which sees the death on its host
  /// or on the next.
  bool speaks_first(int rank, int size) const;
  /// A call of MPI has failed, usually because a peer has died; it is unknown which one.
  void mark_lost_peer() noexcept { lost_peer_ = true; }
  /// The first dead rank; -1: none; kUnknownRank: MPI fails.
  int dead() const noexcept { return dead_ >= 0 || !lost_peer_ ? dead_.load() : kUnknownRank; }
  static constexpr int kUnknownRank = -2;

 private:
  bool suspected(int rank) const;

  mutable std::mutex mutex_;
  std::vector<int> ranks_;  ///< guarded by mutex_
  std::atomic<int> dead_{-1};
  std::atomic<bool> lost_peer_{false};
};

}  // namespace lockstep::comm
