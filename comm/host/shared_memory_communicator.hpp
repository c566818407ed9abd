/// \file
/// Ranks of one machine reduce in shared memory, without messages or copies.
///
/// BARRIERS are the only primitive (shared_group.hpp).
///
/// SMALL sums (such as a step's status) use a barrier's message: each rank puts up to 512 bytes beside its counter.
/// After the barrier it adds the data of all ranks in rank order. One barrier.
///
/// LARGE sums in reduction_memory(): a barrier (all terms are written); each rank adds its piece of the elements over
/// all ranks' buffers, in rank order, and writes the sum into every rank's buffer; a barrier (all sums are written).
/// Two barriers; each element is added once, read p times and written p times in total. Pieces are cut at cache lines.
///
/// OTHER MEMORY passes through a 256 KiB buffer in the common memory, piece by piece: two copies and two barriers per
/// piece.
#pragma once

#include <vector>

#include "comm/communicator.hpp"
#include "comm/failure/failure_detector.hpp"
#include "comm/failure/urgency.hpp"
#include "comm/host/shared_group.hpp"
#include "comm/session/mpi_state.hpp"
#include "comm/session/peers.hpp"

namespace lockstep::comm {

class SharedMemoryCommunicator final : public Communicator {
 public:
  /// `shared`: segments of all ranks. The session owns `state` and outlives this.
  SharedMemoryCommunicator(MpiSession::State& state, PeerTable peers, SharedGroup::Shared shared,
                           const CommunicatorOptions& options);

  Transport transport() const noexcept override { return Transport::shared_memory; }
  int ranks_sharing_memory() const noexcept override { return size(); }
  std::vector<int> dead_peers() const override { return detector_.dead_peers(); }

 private:
  std::unique_ptr<std::pmr::memory_resource> do_reduction_memory(std::size_t bytes, MemoryUse use) override;
  void do_map(std::span<std::byte> data, std::vector<std::byte*>& everywhere) const override {
    group_.find_common(data, everywhere);
  }
  void do_all_reduce(std::span<float> data) override;
  void do_all_reduce(std::span<double> data) override;
  void do_all_reduce(const TreeTerms& terms) override;
  void do_reduce_scatter(std::span<float> data) override;
  void do_all_gather(std::span<std::byte> data, std::size_t element_bytes) override;
  void do_broadcast(std::span<std::byte> data, int root) override;
  void do_barrier() override;
  void do_note_activity(const char* what, std::int64_t step) noexcept override { detector_.note_activity(what, step); }
  void do_begin_long_operation(const char* what) override { detector_.begin_long_operation(what); }
  void do_end_long_operation() noexcept override { detector_.end_long_operation(); }
  void do_note_wait(std::string_view text) override { detector_.note_wait(text); }
  double do_set_deadline(double seconds) override { return detector_.set_deadline(seconds); }
  bool do_check_peers() override { return detector_.check_peers(); }

  template <class T>
  void all_reduce(std::span<T> data);
  template <class T>
  void all_reduce_small(std::span<T> data);
  template <class T>
  void all_reduce_common(const std::vector<T*>& buffers, std::size_t count, std::uint64_t address);
  template <class T>
  void fill_bounce_buffers(std::vector<T*>& buffers) const;

  Urgency urgency_;  ///< always urgent, because a waiting rank does nothing else
  FailureDetector detector_;
  SharedGroup group_;                   ///< all ranks: a rank's position is its rank
  std::vector<float*> float_buffers_;   ///< sized once, so that no collective allocates
  std::vector<const float*> subtrees_;  ///< subtrees of a sum by a tree
  std::vector<double*> double_buffers_;
  std::vector<std::byte*> byte_buffers_;
};

}  // namespace lockstep::comm
