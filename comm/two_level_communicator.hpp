/// \file
/// Ranks on several machines, some of them together: what passes between machines passes once, on all their links.
///
/// WHAT IS SPLIT. Each machine owns what its ranks own (own_slice); K lanes share it, K the least number of ranks that
/// any machine has. The rank at position k < K of every machine drives lane k: a ring (ring_group.hpp) over the
/// machines for the k-th piece of each machine's elements. Within a machine all ranks' buffers lie in memory that all
/// of them map (shared_group.hpp).
///
/// A SUM. The ranks of a machine meet (all terms are written). On the way round the ring, segment by segment, a lane
/// adds up its elements over the buffers of its machine, in rank order, when or shortly before they are due, adds that
/// to what has come in, and writes what is final into all buffers of its machine. Then the ranks meet again. So the
/// sums within a machine are hidden behind the wire, each element is read once from each buffer and written once to it,
/// and nothing is copied. Where a machine has more ranks than lanes, those without one help: all add up a piece each
/// first, and there is a meeting more.
///
/// ORDER. Ranks of a machine by rank, machines along the ring from the owner's successor on: fixed, and one rank
/// completes each element. The halves (reduce_scatter_sum, all_gather) are those of the all-reduce: the same bits.
///
/// BYTES. Between two machines, over all lanes: 2 (m-1)/m * count elements for m machines, whatever the number of
/// ranks. Wire formats apply there; within a machine nothing is rounded.
///
/// Data ELSEWHERE passes through a staging window, a piece of every rank's slice at a time: two copies more.
///
/// SMALL sums, up to 512 bytes: the ranks of a machine meet, the first of them adds up and exchanges the result with
/// the first of the other machines, then they meet again.
///
/// WAITS, for the ring as for a meeting, are peer_watch.hpp's: whoever waits in vain asks all ranks of the world, so a
/// rank that waits for the culprit itself is not taken for it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/peer_watch.hpp"
#include "comm/ring_group.hpp"
#include "comm/shared_group.hpp"

namespace lockstep::comm {

class TwoLevelCommunicator final : public Communicator, private MeetingWatch {
 public:
  /// Collective. `state` belongs to the session, which outlives this; `segments`: SharedGroup::attach_all of the ranks
  /// on this machine. Throws AgreedError where there is no memory for the staging window.
  TwoLevelCommunicator(MpiSession::State& state, PeerTable peers, std::vector<SharedSegment> segments,
                       double deadline_seconds);

  std::string_view transport_name() const noexcept override { return "two-level"; }
  bool uses_network() const noexcept override { return machines_.size() > 1; }
  int ring_length() const noexcept override { return static_cast<int>(machines_.size()); }

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
  void do_end_long_operation() noexcept override { watch_.end_long_operation(); }
  double do_set_deadline(double seconds) override { return watch_.set_deadline(seconds); }
  bool do_look_at_peers() override { return watch_.look_at_peers(); }

  double deadline_seconds() const override { return watch_.deadline_seconds(); }
  bool may_spin() const override { return spin_ && urgent(); }
  void look_around(const Errand& errand, Patience& patience) override;

  /// What one collective does with one stretch of data.
  struct Task {
    RingTrip trip;
    Collective operation;
    Wire wire = {};
  };

  template <typename T>
  std::vector<T*>& buffers();
  template <typename T>
  void carry_out(std::span<T> data, const Task& task);
  template <typename T>
  void carry_out_through_staging(std::span<T> data, const Task& task);
  /// All buffers of the machine are `buffers`, every rank's slice is in slices_.
  template <typename T>
  void carry_out_in_place(std::span<T> data, const std::vector<T*>& buffers, std::uint64_t place, const Task& task);
  template <typename T>
  void drive_lane(std::span<T> data, const std::vector<T*>& buffers, bool summed, const Task& task);
  template <typename T>
  void sum_small(std::span<T> data, Collective operation);
  /// What this rank's lane carries for each machine, from slices_.
  template <typename T>
  void divide_among_machines();
  /// Memory that all ranks of the machine map, or AgreedError on all ranks when some machine has none.
  std::unique_ptr<std::pmr::memory_resource> take_memory(std::size_t bytes);

  PeerWatch watch_;
  std::vector<std::vector<int>> machines_;
  std::size_t own_machine_;
  int lanes_;
  bool spin_;
  SharedGroup group_;              ///< the ranks of this machine
  std::optional<RingGroup> ring_;  ///< of this rank's lane, if it has one; lane 0's are the first of each machine
  std::uint64_t progress_seen_ = 0;

  std::unique_ptr<std::pmr::memory_resource> staging_memory_;
  std::span<std::byte> staging_;
  std::vector<float> staged_residual_;
  // Kept between calls so that no collective allocates.
  std::vector<float*> float_buffers_;
  std::vector<double*> double_buffers_;
  std::vector<Slice> slices_;  ///< of the data at hand, one for each rank
  RingParts parts_;
};

}  // namespace lockstep::comm
