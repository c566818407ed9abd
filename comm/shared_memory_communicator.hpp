/// \file
/// Ranks of one machine reduce through memory that all of them map: no message, no copy.
///
/// MEETINGS. Everything is built from one primitive: each rank has a counter in a line of its own; to meet, it adds one
/// and waits until every peer's counter has come as far. Waiting is: look a while (50 us at full speed, 200 us lending
/// the core to others), then sleep on the peer's counter (futex) in slices of 100 ms, so that the deadline is checked
/// and the one who has not come is known. Ranks that outnumber their cores sleep at once. A meeting costs p - 1 reads
/// of a line, 0.2 us between two cores. With its counter a rank publishes its errand: ranks that meet for different
/// things stop there, before they reduce apples into pears.
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

#include <memory>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/deadline.hpp"
#include "comm/peers.hpp"
#include "comm/shared_control.hpp"
#include "comm/shared_segment.hpp"

namespace lockstep::comm {

class SharedMemoryCommunicator final : public Communicator {
 public:
  /// Size of the segment that each rank creates before it introduces itself, and a value for its card.
  static std::size_t control_bytes() noexcept;
  static void initialize_control(SharedSegment& segment, std::uint64_t nonce);
  /// Maps all ranks' segments, `own` among them. Throws std::runtime_error when one cannot be mapped.
  static std::vector<SharedSegment> attach_all(const PeerTable& peers, int own_rank, SharedSegment own);

  /// `suspects` belongs to the session, which outlives this.
  SharedMemoryCommunicator(int rank, PeerTable peers, std::vector<SharedSegment> segments, double deadline_seconds,
                           Suspects& suspects);
  /// Takes leave of the peers: should this rank end with an error of its own, they do not report it as dead as well.
  ~SharedMemoryCommunicator() override;

  std::string_view transport_name() const noexcept override { return "shared memory"; }

 private:
  /// The ranks' buffers for one reduction_memory.
  struct Window {
    std::uint64_t number = 0;
    std::vector<SharedSegment> segments;
  };

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

  SharedControl& control(int rank) const noexcept {
    return *reinterpret_cast<SharedControl*>(controls_[static_cast<std::size_t>(rank)].data());
  }
  std::byte* bounce(int rank) const noexcept;

  template <typename T>
  void all_reduce(std::span<T> data);
  template <typename T>
  void all_reduce_small(std::span<T> data);
  template <typename T>
  void all_reduce_common(const std::vector<T*>& buffers, std::size_t count, std::uint64_t place);
  /// Fills `buffers` with where every rank has `data`, and returns the place; 0 when it lies elsewhere.
  template <typename T>
  std::uint64_t find_common(std::span<T> data, std::vector<T*>& buffers);
  template <typename T>
  void fill_bounce_buffers(std::vector<T*>& buffers) const;

  /// The message this rank brings to the next meeting, and what `rank` brought to the last.
  std::byte* next_message() noexcept { return control(rank()).message[(meeting_ + 1) % 2].data(); }
  const std::byte* message(int rank) const noexcept { return control(rank).message[meeting_ % 2].data(); }

  void meet(const Errand& errand);
  bool has_come(int peer) const noexcept;
  void wait_for(int peer, const Errand& errand);
  /// Throws when a peer that is waited for has died.
  void look_for_the_dead();
  /// Throws when `peer` is dead and has not taken leave.
  void require_alive(int peer);
  [[noreturn]] void blame(const std::vector<int>& culprits, const Errand& errand, double waited);

  PeerTable peers_;
  std::vector<SharedSegment> controls_;
  std::vector<std::unique_ptr<Window>> windows_;
  std::uint64_t windows_made_ = 0;
  double deadline_seconds_;
  bool spin_;
  std::uint32_t meeting_ = 0;
  Suspects& suspects_;
  std::vector<float*> float_buffers_;  ///< sized once, so that no collective allocates
  std::vector<double*> double_buffers_;
  std::vector<std::byte*> byte_buffers_;
};

}  // namespace lockstep::comm
