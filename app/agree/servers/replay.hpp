/// \file
/// The order of a record that is repeated (--replay): which gradient makes which update, and which weights it is of.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "app/agree/servers/arrivals.hpp"

namespace lockstep::app {

/// A server's. Admission asks it when workers begin; where each gradient is an update the server asks it for the order
/// of its reads and updates. Updates are counted from 0 on, as in the run that is repeated.
class Replay {
 public:
  /// `server`: the number of the server, for messages.
  Replay(ArrivalScript script, int server);

  std::int64_t end() const noexcept { return script_.end(); }
  /// Forgets everything after so many updates.
  void end_at(std::int64_t last) { script_.end_at(last); }
  /// The updates made when the round that goes on after `made` ends.
  std::int64_t round_end(std::int64_t made) const;
  /// Number of gradients that make an update before end().
  int gradients_of(std::int64_t update) const { return static_cast<int>(script_.at(update).size()); }
  /// The first update of [first, last) that a gradient of this worker makes; -1: there is none.
  std::int64_t next_of(int worker, std::int64_t first, std::int64_t last) const;

  /// The version of the weights that a worker reads for its next gradient, with `made` updates made. Throws
  /// comm::PeerError where the record knows none, or that version is gone.
  std::int64_t wants(int worker, std::int64_t made);
  /// The worker has got that version.
  void has_read(int worker) { workers_[static_cast<std::size_t>(worker)].reads = false; }
  /// The gradient of those weights is here.
  void brought(int worker);
  /// The worker whose gradient makes the next update; nullopt: it is not here yet, or somebody is still to read the
  /// weights that it changes.
  std::optional<int> next(std::int64_t made) const;

 private:
  struct Worker {
    std::int64_t reads_for = -1;  ///< update for which it has read, or wants to read, the weights
    std::int64_t brought = -1;    ///< update that its gradient makes
    bool reads = false;           ///< it wants to
  };
  std::int64_t reads_version(std::int64_t update) const { return update - script_.at(update).front().late; }
  std::int64_t next_gradient(int worker, std::int64_t made) const;

  ArrivalScript script_;
  int server_;
  std::vector<Worker> workers_;
};

}  // namespace lockstep::app
