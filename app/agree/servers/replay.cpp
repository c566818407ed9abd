#include "app/agree/servers/replay.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "comm/session/mpi_session.hpp"

namespace lockstep::app {

Replay::Replay(ArrivalScript script, int server)
    : script_(std::move(script)), server_(server), workers_(static_cast<std::size_t>(script_.head.workers)) {}

std::int64_t Replay::round_end(std::int64_t made) const {
  const auto end = std::ranges::upper_bound(script_.round_ends, made);
  return end == script_.round_ends.end() ? script_.end() : *end;
}

std::int64_t Replay::next_of(int worker, std::int64_t first, std::int64_t last) const {
  for (std::int64_t update = first; update < last; ++update) {
    for (const Arrival& arrival : script_.at(update)) {
      if (arrival.worker == worker) return update;
    }
  }
  return -1;
}

/// The worker's next update after those for which it has read weights or delivered gradients.
std::int64_t Replay::next_gradient(int index, std::int64_t made) const {
  const Worker& worker = workers_[static_cast<std::size_t>(index)];
  return next_of(index, std::max(made, std::max(worker.brought, worker.reads_for) + 1), end());
}

std::int64_t Replay::wants(int index, std::int64_t made) {
  Worker& worker = workers_[static_cast<std::size_t>(index)];
  worker.reads_for = next_gradient(index, made);
  worker.reads = true;
  if (worker.reads_for < 0) {
    throw comm::PeerError(
        fmt::format("--replay: the record of server {} knows no further gradient of rank {}: give the options of the "
                    "run that is repeated, and the records of all servers",
                    server_, index));
  }
  const std::int64_t version = reads_version(worker.reads_for);
  if (version < made) {
    throw comm::PeerError(
        fmt::format("--replay: rank {} is to read the weights of update {}, and {} are made: give the same "
                    "--evaluate-every and --checkpoint-every as in the run that is repeated",
                    index, version, made));
  }
  return version;
}

void Replay::brought(int index) {
  Worker& worker = workers_[static_cast<std::size_t>(index)];
  worker.brought = worker.reads_for;
}

std::optional<int> Replay::next(std::int64_t made) const {
  if (made >= end()) return std::nullopt;
  const int next = script_.at(made).front().worker;
  if (workers_[static_cast<std::size_t>(next)].brought != made) return std::nullopt;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const Worker& worker = workers_[i];
    const bool began = worker.reads_for >= made && worker.reads_for != worker.brought;
    if (began && !worker.reads) continue;
    const std::int64_t update = began ? worker.reads_for : next_gradient(static_cast<int>(i), made);
    if (update >= 0 && reads_version(update) <= made) return std::nullopt;
  }
  return next;
}

}  // namespace lockstep::app
