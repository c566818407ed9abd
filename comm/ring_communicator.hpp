/// \file
/// Ranks on any hosts: each talks to its two neighbours on a ring, so that every link carries the same load, in both
/// directions, all the time.
///
/// WHAT IS SPLIT. count elements in p nearly equal slices (own_slice); rank r ends up with the sum of slice r.
///
/// REDUCE-SCATTER, steps s = 0 … p-2: rank r sends slice (r - s - 1) mod p to rank r+1, receives slice (r - s - 2) mod
/// p from rank r-1 and adds its own elements to it. A slice starts at the rank after its owner, passes every rank once,
/// gathers a term at each, and is complete where it is owned: at step p-2 rank r receives slice (r - p) mod p = r.
///
/// ALL-GATHER, steps s = p-1 … 2p-3: the same rule, but what is received is final and replaces what is there; at step
/// p-1 rank r sends slice (r - p) mod p = r, its own. An all-reduce is both, steps 0 … 2p-3, without a pause between.
///
/// BYTES. Each rank sends (and receives) 2 (p-1) slices of count/p elements: 2 (p-1)/p * count elements, the least any
/// all-reduce can do. The order of a slice's additions is its way round the ring: fixed, and one rank completes it, so
/// the result has the same bits on every rank and in every run.
///
/// PIPELINE. Slices travel in segments of 61,440 bytes (Open MPI's TCP sends up to 64 KiB with the header at once;
/// larger messages ask first and cost 20-60 % more). A segment of step s+1 leaves as soon as the same segment of step s
/// has come in, with several receives posted ahead, so the p-1 steps overlap and a transfer is bound by the wire, not
/// by 2(p-1) latencies of a slice each.
///
/// SMALL sums, up to 512 bytes, would pay those latencies in full: there everybody gathers everybody's terms
/// in log2(p) rounds (Bruck) and adds them up itself, in rank order: the same bits again.
///
/// WAITS. Every request is polled: a while at full speed, then yielding, then with short sleeps; ranks that outnumber
/// their cores yield at once. After the deadline without progress a rank reports to all others and listens for their
/// reports for 1.5 s; a rank that is in a collective, too, reports at once. Who stays silent is the culprit.
#pragma once

#include <vector>

#include "comm/communicator.hpp"
#include "comm/mpi_state.hpp"
#include "comm/peers.hpp"
#include "comm/shared_control.hpp"
#include "comm/status_channel.hpp"

namespace lockstep::comm {

class RingCommunicator final : public Communicator {
 public:
  /// `state` belongs to the session, which outlives this; `note`: see transport_note().
  RingCommunicator(MpiSession::State& state, PeerTable peers, double deadline_seconds, std::string note);
  /// On the way out of an error it takes leave of the peers, so that they do not report this rank as dead as well.
  ~RingCommunicator() override;

  std::string_view transport_name() const noexcept override { return "ring"; }
  bool uses_network() const noexcept override { return true; }

 private:
  std::unique_ptr<std::pmr::memory_resource> do_reduction_memory(std::size_t bytes) override;
  void do_all_reduce_sum(std::span<float> data, const Wire& wire) override;
  void do_all_reduce_sum(std::span<double> data) override;
  void do_reduce_scatter_sum(std::span<float> data, const Wire& wire) override;
  void do_all_gather(std::span<float> data) override;
  void do_broadcast(std::span<std::byte> data, int root) override;
  void do_barrier() override;
  void do_note_activity(const char* what, std::int64_t step) noexcept override;
  void do_begin_long_operation(const char* what) override;
  void do_end_long_operation() noexcept override;
  double do_set_deadline(double seconds) override;
  bool do_look_at_peers() override;

  template <typename T>
  void all_reduce(std::span<T> data);
  template <typename T>
  void all_reduce_small(std::span<T> data);
  /// Steps [first, last) of the essay above.
  template <typename T>
  void travel(std::span<T> data, int first, int last, Collective operation);

  enum class Progress { none, some, done };
  /// Calls `advance` until it says done, resting in between as above.
  template <typename Advance>
  void wait_until_done(Collective operation, Advance advance);
  /// Waits for the requests; the last of them receives `expected_bytes` (-1: it is no receive).
  void wait_for(std::span<MPI_Request> requests, Collective operation, std::int64_t expected_bytes = -1);

  /// Throws when a peer that has not taken leave is dead.
  void look_for_the_dead();
  /// One look aside during a wait, about every 50 ms: has anybody died, reported, or run out of time?
  void look_around(Collective operation, Patience& patience);
  void report_waiting(Collective operation, double waited);
  /// Asks everybody where they stand and throws who is to blame.
  [[noreturn]] void inquest(Collective operation, double waited);
  std::string own_activity() const;
  std::string verdict(Collective operation, double waited);
  [[noreturn]] void diverged(Collective operation, int peer, std::int64_t got, std::size_t expected);

  MpiSession::State& state_;
  PeerTable peers_;
  StatusChannel status_;
  double deadline_seconds_;
  bool oversubscribed_;
  std::uint64_t sequence_ = 0;  ///< collectives entered
  const char* activity_ = "the start";
  std::int64_t step_ = -1;
  std::vector<std::byte> staging_;      ///< segments received to be added
  std::vector<std::byte> small_terms_;  ///< every rank's message of a small sum
};

}  // namespace lockstep::comm
