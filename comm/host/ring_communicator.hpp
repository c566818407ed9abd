/// \file
/// Ranks on any hosts, all on one ring in rank order. ring_group.hpp has the algorithms, failure_detector.hpp the
/// waits.
#pragma once

#include "comm/host/network_communicator.hpp"
#include "comm/host/ring_group.hpp"

namespace lockstep::comm {

class RingCommunicator : public NetworkCommunicator {
 public:
  /// The session owns `state` and outlives this.
  RingCommunicator(MpiSession::State& state, PeerTable peers, const CommunicatorOptions& options);
  ~RingCommunicator() override { stop(); }

  Transport transport() const noexcept override { return Transport::ring; }
  int ring_length() const noexcept override { return size(); }

 private:
  std::unique_ptr<ReductionMemory> take_memory(std::size_t bytes) override;
  void run_all_reduce(std::span<float> data) override;
  void run_all_reduce(std::span<double> data) override;
  void run_reduce_scatter(std::span<float> data) override;
  void run_all_gather(std::span<std::byte> data, std::size_t element_bytes) override;
  void run_broadcast(std::span<std::byte> data, int root) override;
  void run_barrier() override;
  bool can_overtake() const noexcept override { return true; }
  void begin_urgent(std::span<double> data) override;
  Progress advance_urgent() override { return urgent_.advance(); }
  void abandon_urgent() noexcept override { urgent_.abandon(); }

  AllReduceSchedule schedule_of(std::size_t bytes) const noexcept { return limits_of(size()).schedule(bytes); }
  /// The own_slice of every rank, of `count` elements.
  const RingParts& parts_of(std::size_t count) { return fill(parts_, count); }
  const RingParts& fill(RingParts& parts, std::size_t count) const;

  RingGroup ring_;
  RingParts parts_;
  SegmentHandler in_place_;
  RingGroup urgent_;  ///< for sums that overtake
  RingParts urgent_parts_;
};

}  // namespace lockstep::comm
