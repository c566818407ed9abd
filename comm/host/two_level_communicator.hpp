/// \file
/// Ranks on several machines, some of them on the same one: data pass between machines only once, and use all their
/// links.
///
/// DIVISION. Each machine owns the elements of its ranks (own_slice). K rings share the work; K is the least number of
/// ranks on any machine. Ring k (ring_group.hpp) joins the ranks at position k < K of all machines and carries the k-th
/// piece of each machine's elements. Within a machine all ranks map each other's buffers (shared_group.hpp).
///
/// A SUM. The ranks of a machine wait for each other (a barrier: all terms are written). During the ring's steps,
/// segment by segment, a rank adds its ring's elements over the buffers of its machine, in rank order, when they are
/// due or shortly before. It adds the result to the incoming data, and writes final sums into all buffers of its
/// machine. Then comes another barrier. Thus communication hides the sums within a machine, each element is read once
/// from each buffer and written once to it, and nothing is copied. If a machine has more ranks than there are rings,
/// the additional ones help: first all ranks add a piece each, which costs one more barrier.
///
/// ORDER. Ranks of a machine by rank, machines along the ring from the owner's successor on. The order is fixed, and
/// one rank completes each element. The halves (reduce_scatter_sum, all_gather) are those of the all-reduce: the same
/// bits.
///
/// BYTES. Between two machines, over all rings: 2 (m-1)/m * count elements for m machines, for any number of ranks.
/// Wire formats apply there; within a machine nothing is rounded.
///
/// OTHER MEMORY passes through a staging window, a piece of every rank's slice at a time: two more copies.
///
/// SMALL sums, up to 512 bytes: after a barrier of the machine's ranks the first of them adds the terms, and the first
/// ranks of all machines sum by doubling; another barrier ends it.
///
/// SUMS THAT OVERTAKE use the first rank of each machine. Each rank writes its terms to a buffer that its whole machine
/// maps, and increments a counter. When all have done so, the first rank adds the terms in rank order, sums with the
/// first ranks of the other machines and increments its counter; the others copy the sums. Two buffers alternate: when
/// a rank begins the sum after the next, all ranks have begun the next one, so none reads the buffer any more. These
/// waits poll the sum's own steps; they do not use the barriers.
///
/// WAITS, for the ring and for barriers, are those of failure_detector.hpp. A rank that waits in vain asks all ranks of
/// the world, so a rank that itself waits for the culprit is not blamed.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/host/network_communicator.hpp"
#include "comm/host/ring_group.hpp"
#include "comm/host/shared_group.hpp"

namespace lockstep::comm {

class TwoLevelCommunicator final : public NetworkCommunicator {
 public:
  /// Collective. The session owns `state` and outlives this; `shared`: segments of the ranks on this machine. Throws
  /// ConsensusError if the staging window cannot be allocated.
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
  /// Memory that all ranks of the machine map. Throws ConsensusError on all ranks if some machine cannot allocate it.
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

  /// The work of one collective on a range of data.
  struct Task {
    RingPhases phases;
    Collective operation;
    AllReduceSchedule schedule;     ///< by the size of the whole data, not of the pieces in the staging window
    std::size_t element_bytes = 1;  ///< size of gathered elements; otherwise 1
    Wire wire = {};
  };

  std::size_t part_of(std::size_t bytes) const noexcept override { return bytes / static_cast<std::size_t>(rings_); }
  AllReduceSchedule schedule_of(std::size_t bytes) const noexcept {
    return limits_of(ring_length()).schedule(part_of(bytes));
  }
  /// The buffer of the rank at `position` for the sum that overtakes.
  double* urgent_buffer(int position) const noexcept;
  /// Starts the sum between machines in the first rank, when all terms of the machine are present.
  void start_urgent_sum();
  template <class T>
  std::vector<T*>& buffers();
  /// own_slice in elements T; bytes are only parts of elements.
  template <class T>
  Slice owned_by(int rank, std::size_t count, const Task& task) const;
  template <class T>
  void carry_out(std::span<T> data, const Task& task);
  template <class T>
  void carry_out_through_staging(std::span<T> data, const Task& task);
  /// `buffers`: all buffers of the machine. slices_ has every rank's slice.
  template <class T>
  void carry_out_in_place(std::span<T> data, const std::vector<T*>& buffers, std::uint64_t address, const Task& task);
  template <class T>
  void run_ring(std::span<T> data, const std::vector<T*>& buffers, bool summed, const Task& task);
  template <class T>
  void sum_small(std::span<T> data, Collective operation);
  /// Computes, from slices_, the parts of each machine on this rank's ring.
  template <class T>
  void divide_among_machines();
  std::vector<std::vector<int>> machines_;
  std::size_t own_machine_;
  int rings_;
  SharedGroup group_;              ///< ranks of this machine
  std::optional<RingGroup> ring_;  ///< ring of this rank, if it is on one; ring 0 joins the first rank of each machine

  std::unique_ptr<ReductionMemory> staging_memory_;
  std::span<std::byte> staging_;
  // Kept between calls so that no collective allocates.
  std::vector<float*> float_buffers_;
  std::vector<double*> double_buffers_;
  std::vector<std::byte*> byte_buffers_;
  std::vector<Slice> slices_;  ///< slices of the present data, one per rank
  RingParts parts_;
  // State of the sum that overtakes.
  std::optional<RingGroup> urgent_;  ///< only in the machine's first rank
  bool urgent_travels_ = false;
  std::uint32_t urgent_number_ = 0;
  std::span<double> urgent_data_;
  RingParts urgent_parts_;
};

}  // namespace lockstep::comm
