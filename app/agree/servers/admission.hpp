/// \file
/// When workers may begin a step, and which gradients count: the rule of a parameter server, without its messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "app/agree/servers/replay.hpp"

namespace lockstep::app {

/// Two rules. EACH BY ITSELF (quorum 0): every gradient is an update. A worker may begin its next step while it is no
/// more than `staleness` steps ahead of the slowest (stale synchronous parallel: Ho et al., NIPS 2013). IN SUMS: the
/// first `quorum` gradients of a step make one update (backup workers: Chen et al. 2016, "Revisiting distributed
/// synchronous SGD"); what comes later is dropped whole, and its worker goes on with the newest step.
///
/// ENDS. A round has a target, a number of updates. A worker begins a step only where its gradient is still wanted, so
/// a round ends with exactly as many updates as were wanted, and no gradient under way.
class Admission {
 public:
  struct Options {
    int workers = 1;
    int quorum = 0;                              ///< gradients of an update; 0: each by itself
    std::optional<std::int64_t> staleness = {};  ///< bound with quorum 0; nullopt: none
    std::int64_t updates = 0;                    ///< made before
  };
  /// The answer to a worker.
  struct Turn {
    int worker = 0;
    bool goes_on = false;   ///< else it pauses until the next round
    std::int64_t step = 0;  ///< step that it is to make, 0-based: of a sum, or whole steps of all workers
  };
  enum class Verdict {
    update,   ///< it makes an update: alone, or with those that came before
    waits,    ///< it counts; others are missing
    dropped,  ///< too late
  };

  explicit Admission(const Options& options);

  /// All workers wait. The round ends with this many updates in all, or where that of the record that is repeated did:
  /// then the record decides, not the order of arrival. `replay` outlives the round, and has updates left.
  void begin_round(std::int64_t target, const Replay* replay = nullptr);
  /// The round ends as soon as a whole step is done.
  void drain();
  /// The next worker that waits and may be told something.
  std::optional<Turn> next();
  /// A gradient of this worker has come. After `update` in sums: decide(), then updated().
  Verdict arrived(int worker);
  /// Whose gradients make the sum that is complete, in rank order: what comes from here on is too late for it, and
  /// nobody is told anything until it is updated().
  std::vector<int> decide();
  /// The update is made: in sums those who contributed wait again.
  void updated();
  /// The worker has died. True where a sum is complete without it.
  bool lost(int worker);

  std::int64_t updates() const noexcept { return updates_; }
  /// Gradients of an update, as few as there are workers left.
  int quorum() const noexcept;
  int living() const noexcept;
  /// Everybody pauses.
  bool over() const noexcept;
  /// Whose gradient is under way.
  std::vector<int> missing() const { return in(State::works); }

 private:
  enum class State { waits, works, contributed, pauses, lost };
  struct Worker {
    State state = State::pauses;
    std::int64_t step = 0;   ///< update that it works on, or has worked on
    std::int64_t clock = 0;  ///< gradients brought
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
  bool decided_ = false;  ///< on the sum at hand
};

}  // namespace lockstep::app
