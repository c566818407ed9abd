/// \file
/// Measures bandwidth and latency between hosts, pair by pair, before a job depends on them.
///
/// Each host sends one rank. Pairs are measured in rounds, as in a tournament: in a round every host has at most one
/// partner, so disjoint pairs run at once and no host's link carries two measurements. N hosts have N (N - 1) / 2 pairs
/// and need N - 1 rounds (N if N is odd). If that takes too long, the probe measures the ring of hosts (every host with
/// its two neighbours, the links of a ring all-reduce) and then random rounds, drawn from a seed.
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

/// Rounds that hold every pair once.
std::vector<Round> tournament(int hosts);
/// Two or three rounds that hold every pair of neighbours on the ring once.
std::vector<Round> ring_rounds(int hosts);
/// All pairs if they need at most `most_rounds`; otherwise the ring, and random rounds for the rest.
std::vector<Round> plan_rounds(int hosts, int most_rounds, std::uint64_t seed);

/// These pairs, greedily in the given order, in few rounds.
std::vector<Round> rounds_of(std::span<const HostPair> pairs);

struct PairFigures {
  HostPair pair = {};
  double latency = 0;      ///< seconds: half of a small message's round trip; the quickest tenth takes at most this
  double forward = 0;      ///< bytes/s from the first to the second
  double backward = 0;     ///< bytes/s from the second to the first
  std::string error = {};  ///< non-empty: the hosts did not reach each other
  double bandwidth() const noexcept { return forward < backward ? forward : backward; }
};

struct ProbeOptions {
  double seconds = 5;            ///< approximate time of all rounds together
  double deadline_seconds = 10;  ///< limit for a pair without progress
};

/// Shortest useful round: shorter ones measure the start of a transfer.
inline constexpr double kMinRoundSeconds = 0.1;
/// Number of rounds that fit, at least three.
int most_rounds(const ProbeOptions& options) noexcept;

/// Collective. `ranks`: one rank per host, which measures; `rounds`: the pairs; both equal on every rank. The other
/// ranks wait. Returns every measured pair, on every rank, including failed pairs. Their messages remain outstanding:
/// end the job with MpiSession::abort, because MPI_Finalize may wait for them.
std::vector<PairFigures> probe_network(MpiSession& session, Communicator& communicator, std::span<const int> ranks,
                                       std::span<const Round> rounds, const ProbeOptions& options);

/// Lead of a host's clock over that of the first host.
struct ClockOffset {
  double seconds = 0;
  double uncertainty = 0;  ///< half of the quickest round trip
  std::string error = {};  ///< non-empty: no answer
};

/// Collective. Compares the clocks (CLOCK_REALTIME) of all `ranks` with that of the first, by the quickest of several
/// round trips. Returns one entry for each rank in `ranks`, on every rank of the world.
std::vector<ClockOffset> measure_clocks(MpiSession& session, Communicator& communicator, std::span<const int> ranks,
                                        double deadline_seconds);

}  // namespace lockstep::comm
