/// \file
/// The time for which a rank waits for its peers, and the choice of the rank that reports a failure.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace lockstep::comm {

/// The remaining time of a wait. exhausted() charges the time since its last call, at most one second each. So a
/// process that was stopped, or whose machine slept, does not blame its peers when it continues. Seconds in which the
/// thread was ready to run but got no core are charged in full, if the kernel counts them. So a busy machine does not
/// delay the report of a missing peer. Check for the awaited event before each call.
class Patience {
 public:
  /// Limit for a peer in a declared long operation, in deadlines; after that the peer counts as stuck.
  static constexpr double kLongOperationFactor = 30;

  /// `excuse_seconds`: lower bound of the limit for a long operation.
  explicit Patience(double deadline_seconds, double excuse_seconds = 0);

  /// Charges the time since the last call; returns true if none is left. Call it at least once a second. `excused`: the
  /// awaited peer is in a declared long operation and sends heartbeats.
  bool exhausted(bool excused);
  /// Seconds charged, without the excused ones.
  double waited() const noexcept { return charged_; }

 private:
  /// The part of the `elapsed` seconds that is charged.
  double slice_of(double elapsed);

  std::chrono::steady_clock::time_point last_;
  std::optional<double> without_core_;  ///< seconds without a core, at the last call; nullopt before the first
  double deadline_;
  double most_excused_;
  double charged_ = 0;
  double excused_ = 0;
};

/// Seconds for which `rank` waits for other ranks to report the failure first, because their report ends the job (a
/// launcher takes a second or two); 0 if it `speaks_first`.
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
