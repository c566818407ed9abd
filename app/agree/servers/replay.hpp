/// \file
/// The order of a repeated record (--replay): which gradient makes each update, and from which weights it was computed.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "app/agree/servers/arrivals.hpp"

namespace lockstep::app {

/// Repeats the record of one server. Admission asks it when workers begin. If each gradient makes an update, the server
/// also asks it for the order of reads and updates. Updates are counted from 0, as in the recorded run.
class Replay {
 public:
  /// `server`: the server's number, for messages.
  Replay(ArrivalScript script, int server);

  std::int64_t end() const noexcept { return script_.end(); }
  /// Discards everything after the first `last` updates of the run.
  void end_at(std::int64_t last) { script_.end_at(last); }
  /// Number of updates at the end of the round that continues after `made` updates.
  std::int64_t round_end(std::int64_t made) const;
  /// Number of gradients that make an update before end().
  int gradients_of(std::int64_t update) const { return static_cast<int>(script_.at(update).size()); }
  /// The first update in [first, last) with a gradient of this worker; -1: there is none.
  std::int64_t next_of(int worker, std::int64_t first, std::int64_t last) const;

  /// Returns the version of the weights that the worker reads for its next gradient. `made`: number of updates made.
  /// Throws comm::PeerError if the record has no further gradient of the worker, or if that version is gone.
  std::int64_t wants(int worker, std::int64_t made);
  /// Notes that the worker has received that version.
  void has_read(int worker) { workers_[static_cast<std::size_t>(worker)].reads = false; }
  /// Notes that the gradient of those weights has arrived.
  void brought(int worker);
  /// Returns the worker whose gradient makes the next update. Returns nullopt if it has not arrived, or if a worker
  /// must still read the weights that the update changes.
  std::optional<int> next(std::int64_t made) const;

 private:
  struct Worker {
    std::int64_t reads_for = -1;  ///< update for which it reads, or has read, the weights
    std::int64_t brought = -1;    ///< update of its last gradient that arrived
    bool reads = false;           ///< the weights are requested but not sent yet
  };
  std::int64_t reads_version(std::int64_t update) const { return update - script_.at(update).front().late; }
  std::int64_t next_gradient(int worker, std::int64_t made) const;

  ArrivalScript script_;
  int server_;
  std::vector<Worker> workers_;
};

}  // namespace lockstep::app
