/// \file
/// Ranks on several machines, some of them together: what passes between machines passes once, on all their links.
///
/// WHAT IS SPLIT. Each machine owns what its ranks own (own_slice); K rings share the work, K the least number of
/// ranks that any machine has. Ring k (ring_group.hpp) joins the ranks at position k < K of all machines and carries
/// the k-th piece of each machine's elements. Within a machine all ranks' buffers lie in memory that all of them map
/// (shared_group.hpp).
///
/// A SUM. The ranks of a machine wait for each other (a barrier: all terms are written). On the way round the ring,
/// segment by segment, a rank adds up the elements of its ring over the buffers of its machine, in rank order, when or
/// shortly before they are due, adds that to what has come in, and writes what is final into all buffers of its
/// machine. Then another barrier. So the sums within a machine are hidden behind the wire, each element is read once
/// from each buffer and written once to it, and nothing is copied. Where a machine has more ranks than there are rings,
/// those on none help: all add up a piece each first, and there is a barrier more.
///
/// ORDER. Ranks of a machine by rank, machines along the ring from the owner's successor on: fixed, and one rank
/// completes each element. The halves (reduce_scatter_sum, all_gather) are those of the all-reduce: the same bits.
///
/// BYTES. Between two machines, over all rings: 2 (m-1)/m * count elements for m machines, whatever the number of
/// ranks. Wire formats apply there; within a machine nothing is rounded.
///
/// Data ELSEWHERE passes through a staging window, a piece of every rank's slice at a time: two copies more.
///
/// SMALL sums, up to 512 bytes: after a barrier of the machine's ranks the first of them adds up and the first of all
/// machines sum by doubling; another barrier ends it.
///
/// SUMS THAT OVERTAKE go by the first rank of each machine. Each rank writes its terms to a buffer that all of its
/// machine map and counts on; the first adds them up in rank order when all have, sums with the first of the other
/// machines and counts on; the others copy. There are two buffers that take turns: who is at the next sum but one knows
/// that all have come to the next, so that nobody reads the buffer any more. These waits are polls of the sum's own
/// steps; the barriers are not touched.
///
/// WAITS, for the ring as for a barrier, are failure_detector.hpp's: whoever waits in vain asks all ranks of the world,
/// so a rank that waits for the culprit itself is not taken for it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/host/network_communicator.hpp"
#include "comm/host/ring_group.hpp"
#include "comm/host/shared_group.hpp"
#include "comm/host/stepwise_sum.hpp"

namespace lockstep::comm {

class TwoLevelCommunicator final : public NetworkCommunicator {
 public:
  /// Collective. `state` belongs to the session, which outlives this; `shared`: of the ranks on this
  /// machine. Throws AgreedError where there is no memory for the staging window.
  TwoLevelCommunicator(MpiSession::State& state, PeerTable peers, SharedGroup::Shared shared,
                       const CommunicatorOptions& options);
  ~TwoLevelCommunicator() override { stop(); }

  Transport transport() const noexcept override { return Transport::two_level; }
  bool uses_network() const noexcept override { return machines_.size() > 1; }
  WireFormat wire_format() const noexcept override {
    return uses_network() ? NetworkCommunicator::wire_format() : WireFormat::fp32;
  }
  int ring_length() const noexcept override { return static_cast<int>(machines_.size()); }
  int ranks_sharing_memory() const noexcept override { return static_cast<int>(machines_[own_machine_].size()); }

 private:
  /// Memory that all ranks of the machine map, or AgreedError on all ranks when some machine has none.
  std::unique_ptr<ReductionMemory> take_memory(std::size_t bytes) override;
  void do_map(std::span<std::byte> data, std::vector<std::byte*>& everywhere) const override;
  void run_all_reduce(std::span<float> data) override;
  void run_all_reduce(std::span<double> data) override;
  void run_reduce_scatter(std::span<float> data) override;
  void run_all_gather(std::span<std::byte> data, std::size_t element_bytes) override;
  void run_broadcast(std::span<std::byte> data, int root) override;
  void run_barrier() override;
  bool can_overtake() const noexcept override { return uses_network(); }
  void begin_urgent(std::span<double> data) override;
  Progress advance_urgent() override;
  void abandon_urgent() noexcept override {
    if (urgent_) urgent_->abandon();
  }

  /// What one collective does with one stretch of data.
  struct Task {
    RingPhases phases;
    Collective operation;
    AllReduceSchedule schedule;     ///< by the size of the whole, which may pass through the staging window in pieces
    std::size_t element_bytes = 1;  ///< of what is gathered, else of T
    Wire wire = {};
  };

  std::size_t part_of(std::size_t bytes) const noexcept override { return bytes / static_cast<std::size_t>(rings_); }
  AllReduceSchedule schedule_of(std::size_t bytes) const noexcept {
    return limits_of(ring_length()).schedule(part_of(bytes));
  }
  /// The rank's buffer of the sum that overtakes.
  double* urgent_buffer(int position) const noexcept;
  /// All terms of the machine have come: the first rank takes them to the other machines.
  void start_urgent_sum();
  template <class T>
  std::vector<T*>& buffers();
  /// own_slice in elements T, which bytes are only parts of.
  template <class T>
  Slice owned_by(int rank, std::size_t count, const Task& task) const;
  template <class T>
  void carry_out(std::span<T> data, const Task& task);
  template <class T>
  void carry_out_through_staging(std::span<T> data, const Task& task);
  /// All buffers of the machine are `buffers`, every rank's slice is in slices_.
  template <class T>
  void carry_out_in_place(std::span<T> data, const std::vector<T*>& buffers, std::uint64_t address, const Task& task);
  template <class T>
  void run_ring(std::span<T> data, const std::vector<T*>& buffers, bool summed, const Task& task);
  template <class T>
  void sum_small(std::span<T> data, Collective operation);
  /// What this rank's ring carries for each machine, from slices_.
  template <class T>
  void divide_among_machines();
  std::vector<std::vector<int>> machines_;
  std::size_t own_machine_;
  int rings_;
  SharedGroup group_;              ///< the ranks of this machine
  std::optional<RingGroup> ring_;  ///< this rank's, if it is on one; ring 0 joins the first rank of each machine

  std::unique_ptr<ReductionMemory> staging_memory_;
  std::span<std::byte> staging_;
  // Kept between calls so that no collective allocates.
  std::vector<float*> float_buffers_;
  std::vector<double*> double_buffers_;
  std::vector<std::byte*> byte_buffers_;
  std::vector<Slice> slices_;  ///< of the data at hand, one for each rank
  RingParts parts_;
  // Of the sum that overtakes.
  std::optional<StepwiseSum> urgent_;  ///< of the machine's first rank
  bool urgent_travels_ = false;
  std::uint32_t urgent_number_ = 0;
  std::span<double> urgent_data_;
  RingParts urgent_parts_;
};

}  // namespace lockstep::comm
