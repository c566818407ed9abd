/// \file
/// Ranks on any hosts, all of them on one ring in rank order: ring_group.hpp has what travels there, peer_watch.hpp how
/// a rank waits for it.
#pragma once

#include <string>

#include "comm/communicator.hpp"
#include "comm/peer_watch.hpp"
#include "comm/ring_group.hpp"

namespace lockstep::comm {

class RingCommunicator final : public Communicator {
 public:
  /// `state` belongs to the session, which outlives this; `note`: see transport_note().
  RingCommunicator(MpiSession::State& state, PeerTable peers, double deadline_seconds, std::string note);

  std::string_view transport_name() const noexcept override { return "ring"; }
  bool uses_network() const noexcept override { return true; }
  int ring_length() const noexcept override { return size(); }

 private:
  std::unique_ptr<std::pmr::memory_resource> do_reduction_memory(std::size_t bytes) override;
  void do_all_reduce_sum(std::span<float> data, const Wire& wire) override;
  void do_all_reduce_sum(std::span<double> data) override;
  void do_reduce_scatter_sum(std::span<float> data, const Wire& wire) override;
  void do_all_gather(std::span<float> data) override;
  void do_broadcast(std::span<std::byte> data, int root) override;
  void do_barrier() override;
  void do_note_activity(const char* what, std::int64_t step) noexcept override { watch_.note_activity(what, step); }
  void do_begin_long_operation(const char* what) override { watch_.begin_long_operation(what); }
  void do_end_long_operation() noexcept override { watch_.end_long_operation(); }
  double do_set_deadline(double seconds) override { return watch_.set_deadline(seconds); }
  bool do_look_at_peers() override { return watch_.look_at_peers(); }

  /// Every rank's own_slice of `count` elements.
  const RingParts& parts_of(std::size_t count);

  PeerWatch watch_;
  RingGroup ring_;
  RingParts parts_;
  RingStation in_place_;
};

}  // namespace lockstep::comm
