/// \file
/// Ranks on any hosts that sum by the MPI library's MPI_Iallreduce, which may know more about the network than we do
/// (UCC, sums in the switches). failure_detector.hpp watches it like everything else. Gathering uses the ring.
///
/// The library determines the order of the additions: a run repeats bit for bit if that order is fixed. Halves of a sum
/// are whole sums of which a part is dropped, so they have the same bits. A sum that overtakes runs concurrently on the
/// session's second communicator.
///
/// MEMORY. A sum under way cannot be cancelled. If it fails, the library may access its memory until MPI has ended. So
/// the library sees only memory that stays that long: memory from reduction_memory(), and a buffer through which all
/// other data are copied.
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
  /// The session owns `state` and outlives this. Sums travel as float32 for any `options`.
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
  /// Sums in place, in memory that the library may see.
  void sum_bytes(std::span<std::byte> data, std::size_t element_bytes, MPI_Datatype type, Collective operation);
  bool is_own(std::span<const std::byte> data) const noexcept;

  using Block = std::shared_ptr<ReductionMemory>;
  std::vector<Block> blocks_;  ///< blocks that reduction_memory() has handed out
  Block buffer_;               ///< buffer for sums of other memory, piece by piece
  Block urgent_buffer_;        ///< buffer of the sum that overtakes
  std::span<double> urgent_;   ///< data of the sum that overtakes
  MPI_Request urgent_request_ = MPI_REQUEST_NULL;
};

}  // namespace lockstep::comm
