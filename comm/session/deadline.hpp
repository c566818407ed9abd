/// \file
/// How long a rank waits for its peers, and who is to blame when the time is up.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <span>
#include <vector>

namespace lockstep::comm {

/// The time a wait has left. It is charged in slices, and a slice counts as one second at most: a process that was
/// itself stopped or whose machine slept does not come back, see an old clock and blame its peers.
class Patience {
 public:
  /// A peer in a declared long operation is waited for this many deadlines before it counts as stuck, or longer.
  static constexpr double kLongOperationFactor = 30;

  /// `excuse_seconds`: so long at least.
  explicit Patience(double deadline_seconds, double excuse_seconds = 0);

  /// Charges the time since the last call (call it at least once a second); true when nothing is left. `excused`: the
  /// peer waited for is in a declared long operation and sends heartbeats.
  bool exhausted(bool excused);
  /// Charged seconds, excused ones left out.
  double waited() const noexcept { return charged_; }

 private:
  std::chrono::steady_clock::time_point last_;
  double deadline_;
  double most_excused_;
  double charged_ = 0;
  double excused_ = 0;
};

/// How long `rank` lets others say first why the job ends (they end it, which takes a launcher a second or two): not at
/// all where it `speaks_first`.
double precedence_seconds(bool speaks_first, int rank);

/// Ranks this rank has given up. From any thread: one waits for messages, another watches connections.
class Suspects {
 public:
  /// They are silent.
  void mark(std::span<const int> ranks);
  /// Its process has died: seen with own eyes, of which not everybody has been in the place.
  void mark_dead(int rank);
  /// Whether `rank` of `size` speaks for the job. Of the silent: the lowest that it does not suspect itself, unless it
  /// suspects more than half of all; then it is the one that is cut off. Of two equal halves that of rank 0 speaks. Of
  /// the dead: the living rank before, who sees it, on its host or on the next.
  bool speaks_first(int rank, int size) const;
  /// A call of MPI has failed, most often because a peer has gone; nobody knows yet which.
  void mark_lost_peer() noexcept { lost_peer_ = true; }
  /// The first that has died; -1: none; kUnknownRank: MPI fails.
  int dead() const noexcept { return dead_ >= 0 || !lost_peer_ ? dead_.load() : kUnknownRank; }
  static constexpr int kUnknownRank = -2;

 private:
  bool suspected(int rank) const;

  mutable std::mutex mutex_;
  std::vector<int> ranks_;  ///< guarded by it
  std::atomic<int> dead_{-1};
  std::atomic<bool> lost_peer_{false};
};

}  // namespace lockstep::comm
