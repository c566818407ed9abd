/// \file
/// Ranks on any hosts that sum by the MPI library's own MPI_Iallreduce, which may know more of the network than we do
/// (UCC, sums in the switches), watched as everything else: failure_detector.hpp. What is gathered takes the ring.
///
/// The order of the additions is the library's: a run repeats bit for bit where that is fixed. Halves of a sum are sums
/// of which a part is dropped, so that they have its bits. A sum that overtakes goes beside them on the session's
/// second communicator.
///
/// MEMORY. A sum under way cannot be called back. The library therefore only ever sees memory that stays until MPI has
/// ended if a sum fails: what reduction_memory() hands out, and a buffer that all other data are copied through.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/host/ring_communicator.hpp"

namespace lockstep::comm {

class MpiCommunicator final : public RingCommunicator {
 public:
  /// `state` belongs to the session, which outlives this. Sums travel in full, whatever `options` say.
  MpiCommunicator(MpiSession::State& state, PeerTable peers, const CommunicatorOptions& options);
  ~MpiCommunicator() override { stop(); }

  Transport transport() const noexcept override { return Transport::mpi; }
  std::string description() const override;
  std::optional<AllReduceLimits> all_reduce_limits() const noexcept override { return std::nullopt; }

 private:
  std::unique_ptr<ReductionMemory> take_memory(std::size_t bytes) override;
  void run_all_reduce(std::span<float> data) override;
  void run_all_reduce(std::span<double> data) override;
  void run_reduce_scatter(std::span<float> data) override;
  void begin_urgent(std::span<double> data) override;
  Progress advance_urgent() override;
  void abandon_urgent() noexcept override;
  template <class T>
  void sum(std::span<T> data, MPI_Datatype type, Collective operation);
  /// In place, in memory that the library may see.
  void sum_bytes(std::span<std::byte> data, std::size_t element_bytes, MPI_Datatype type, Collective operation);
  bool is_own(std::span<const std::byte> data) const noexcept;

  using Block = std::shared_ptr<ReductionMemory>;
  std::vector<Block> blocks_;  ///< handed out and not given back
  Block buffer_;               ///< what else is summed, piece by piece
  Block urgent_buffer_;        ///< what overtakes
  std::span<double> urgent_;   ///< where it came from
  MPI_Request urgent_request_ = MPI_REQUEST_NULL;
};

}  // namespace lockstep::comm
