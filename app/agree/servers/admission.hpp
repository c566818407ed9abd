/// \file
/// Decides when workers may begin a step and which gradients count: the rule of the coordinating parameter server,
/// without its messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "app/agree/servers/replay.hpp"

namespace lockstep::app {

/// There are two rules.
///
/// Each by itself (quorum 0): every gradient makes an update. A worker may begin its next step while it is at most
/// `staleness` steps ahead of the slowest worker (stale synchronous parallel: Ho et al., NIPS 2013).
///
/// Sums: the first `quorum` gradients of a step make one update (backup workers: Chen et al. 2016, "Revisiting
/// distributed synchronous SGD"). Later gradients of the step are dropped whole, and their workers continue with the
/// newest step.
///
/// End of a round: a round has a target number of updates. A worker begins a step only if its gradient is still needed.
/// So a round ends with exactly that number of updates, and no gradient is in progress.
class Admission {
 public:
  struct Options {
    int workers = 1;
    int quorum = 0;                              ///< gradients of an update; 0: each by itself
    std::optional<std::int64_t> staleness = {};  ///< bound in steps, with quorum 0; nullopt: none
    std::int64_t updates = 0;                    ///< updates made before
  };
  /// Answer to a worker.
  struct Turn {
    int worker = 0;
    bool goes_on = false;   ///< true: it makes a step; false: it pauses until the next round
    std::int64_t step = 0;  ///< step to make, from 0: the number of the sum, or of a whole step of all workers
  };
  enum class Verdict {
    update,   ///< the gradient makes an update, alone or with earlier ones
    waits,    ///< the gradient counts, and the sum needs more
    dropped,  ///< the gradient is too late
  };

  explicit Admission(const Options& options);

  /// Begins a round: all living workers wait for their turns. The round ends with `target` updates in total. With
  /// `replay` it ends no later than the recorded round, and the record decides which gradients count, not the order of
  /// arrival. `replay` must outlive the round and have updates left.
  void begin_round(std::int64_t target, const Replay* replay = nullptr);
  /// Ends the round as soon as the step in progress is complete. No effect with a replay.
  void drain();
  /// Returns the next waiting worker that may begin a step or must pause; nullopt if there is none.
  std::optional<Turn> next();
  /// Handles the arrival of this worker's gradient. With sums, call decide() and then updated() after `update`.
  Verdict arrived(int worker);
  /// Closes the complete sum. Returns the workers whose gradients it contains, ascending. Until updated(), arriving
  /// gradients are too late for it, and next() returns nullopt.
  std::vector<int> decide();
  /// With sums: the update is made, and its contributors wait for their next turns.
  void updated();
  /// Handles a worker's death. Returns true if a sum is now complete without it.
  bool lost(int worker);

  std::int64_t updates() const noexcept { return updates_; }
  /// Number of gradients in an update: at most the number of living workers, or as recorded in a replay.
  int quorum() const noexcept;
  int living() const noexcept;
  /// True if all living workers pause.
  bool over() const noexcept;
  /// Workers that are computing a gradient.
  std::vector<int> missing() const { return in(State::works); }

 private:
  enum class State { waits, works, contributed, pauses, lost };
  struct Worker {
    State state = State::pauses;
    std::int64_t step = 0;   ///< update of its current or last gradient
    std::int64_t clock = 0;  ///< number of gradients delivered
  };
  Worker& at(int worker) { return workers_[static_cast<std::size_t>(worker)]; }
  const Worker& at(int worker) const { return workers_[static_cast<std::size_t>(worker)]; }
  bool sums() const noexcept { return options_.quorum > 0; }
  int count(State state) const noexcept;
  std::vector<int> in(State state) const;
  bool may_begin(const Worker& worker, std::int64_t update) const;

  Options options_;
  std::vector<Worker> workers_;
  std::int64_t updates_, target_;
  const Replay* replay_ = nullptr;
  bool decided_ = false;  ///< true between decide() and updated()
};

}  // namespace lockstep::app
