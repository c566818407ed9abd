/// \file
/// Ranks of one machine reduce through memory that all of them map: no message, no copy.
///
/// MEETINGS are the one primitive (shared_group.hpp).
///
/// SMALL sums (a step's vote) ride on the meeting: each rank puts up to 512 bytes beside its counter, meets, and adds
/// what all ranks have put there in rank order. One meeting.
///
/// LARGE sums in reduction_memory(): meet (all terms are written); each rank adds its piece of the elements over all
/// ranks' buffers, in rank order, and writes the sum into every rank's buffer; meet (all sums are written). Two
/// meetings, each element is added once, read p times and written p times in all. Pieces are cut at cache lines.
///
/// Data ELSEWHERE passes through a 256 KiB buffer in the common memory, piece by piece: two copies and two meetings a
/// piece.
#pragma once

#include <vector>

#include "comm/communicator.hpp"
#include "comm/deadline.hpp"
#include "comm/peers.hpp"
#include "comm/shared_control.hpp"
#include "comm/shared_group.hpp"

namespace lockstep::comm {

class SharedMemoryCommunicator final : public Communicator, private MeetingWatch {
 public:
  /// `segments`: as from SharedGroup::attach_all. `suspects` belongs to the session, which outlives this.
  SharedMemoryCommunicator(int rank, PeerTable peers, std::vector<SharedSegment> segments, double deadline_seconds,
                           Suspects& suspects);
  /// Takes leave of the peers: should this rank end with an error of its own, they do not report it as dead as well.
  ~SharedMemoryCommunicator() override;

  std::string_view transport_name() const noexcept override { return "shared memory"; }

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

  double deadline_seconds() const override { return deadline_seconds_; }
  bool may_spin() const override { return spin_; }
  void look_around(const Errand& errand, Patience& patience) override;

  template <typename T>
  void all_reduce(std::span<T> data);
  template <typename T>
  void all_reduce_small(std::span<T> data);
  template <typename T>
  void all_reduce_common(const std::vector<T*>& buffers, std::size_t count, std::uint64_t place);
  template <typename T>
  void fill_bounce_buffers(std::vector<T*>& buffers) const;

  /// Throws when a peer that is waited for has died.
  void look_for_the_dead();
  /// Throws when `peer` is dead and has not taken leave.
  void require_alive(int peer);
  [[noreturn]] void blame(const std::vector<int>& culprits, const Errand& errand, double waited);

  PeerTable peers_;
  SharedGroup group_;  ///< all ranks: a rank's position is its rank
  double deadline_seconds_;
  bool spin_;
  Suspects& suspects_;
  std::vector<float*> float_buffers_;  ///< sized once, so that no collective allocates
  std::vector<double*> double_buffers_;
  std::vector<std::byte*> byte_buffers_;
};

}  // namespace lockstep::comm
