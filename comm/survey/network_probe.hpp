/// \file
/// Bandwidth and latency between hosts, pair by pair, before anybody depends on them.
///
/// Each host sends one rank. Pairs are measured in rounds, as a tournament is played: in a round every host has one
/// partner at most, so disjoint pairs run at once and no host's link carries two measurements. N hosts have
/// N (N - 1) / 2 pairs and need N - 1 rounds (N when N is odd). Where that takes too long, the ring of hosts (every
/// host with its two neighbours, the links that a ring all-reduce uses) and then random rounds, drawn from a seed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace lockstep::comm {

/// Hosts by index; first < second.
struct HostPair {
  int first = 0, second = 0;
  bool operator==(const HostPair&) const = default;
};
using Round = std::vector<HostPair>;  ///< disjoint pairs

/// Every pair once.
std::vector<Round> tournament(int hosts);
/// Every pair of neighbours on the ring once, in two or three rounds.
std::vector<Round> ring_rounds(int hosts);
/// All pairs where that takes `most_rounds` at most; else the ring and as many random rounds as are left.
std::vector<Round> plan_rounds(int hosts, int most_rounds, std::uint64_t seed);

/// These pairs in as few rounds as come of taking them in order.
std::vector<Round> rounds_of(std::span<const HostPair> pairs);

struct PairFigures {
  HostPair pair = {};
  double latency = 0;      ///< seconds: half of a round trip of a small message: the quickest tenth takes no longer
  double forward = 0;      ///< bytes/s from the first to the second
  double backward = 0;     ///< bytes/s from the second to the first
  std::string error = {};  ///< non-empty: they did not reach each other
  double bandwidth() const noexcept { return forward < backward ? forward : backward; }
};

struct ProbeOptions {
  double seconds = 5;            ///< about what all rounds together take
  double deadline_seconds = 10;  ///< a pair that stands still for so long has failed
};

/// The least a round is worth: shorter ones measure the start of a transfer.
inline constexpr double kMinRoundSeconds = 0.1;
/// Rounds that fit, three at least.
int most_rounds(const ProbeOptions& options) noexcept;

/// Collective. `ranks`: who speaks for each host; `rounds`: the pairs; both the same on every rank; the others wait.
/// Returns every pair that was measured, on every rank. A pair that fails is in the result, and then messages are left
/// on their way: end the job with MpiSession::abort, for MPI_Finalize may wait for them.
std::vector<PairFigures> probe_network(MpiSession& session, Communicator& communicator, std::span<const int> ranks,
                                       std::span<const Round> rounds, const ProbeOptions& options);

/// How far the clock of a host is ahead of that of the first one.
struct ClockOffset {
  double seconds = 0;
  double uncertainty = 0;  ///< half of the quickest round trip
  std::string error = {};  ///< non-empty: no answer
};

/// Collective. Compares the clocks (CLOCK_REALTIME) of all `ranks` with that of the first. The answer of the quickest
/// of several round trips counts. One entry for each rank in `ranks`, on every rank of the world.
std::vector<ClockOffset> measure_clocks(MpiSession& session, Communicator& communicator, std::span<const int> ranks,
                                        double deadline_seconds);

}  // namespace lockstep::comm
