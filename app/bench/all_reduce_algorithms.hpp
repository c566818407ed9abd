/// \file
/// The all-reduce algorithms that a benchmark compares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/bench/bench_options.hpp"
#include "app/place/placement.hpp"
#include "comm/communicator.hpp"

namespace lockstep::app {

/// Returns the algorithms that these ranks support. `transport`: the one that Transport::automatic selected.
std::vector<AllReduceAlgorithm> usual_algorithms(comm::Transport transport, bool gpus, DeviceChoice device);

/// One all-reduce algorithm, with memory for the largest size. All calls are collective except load() and fetch().
class AllReduce {
 public:
  virtual ~AllReduce() = default;
  AllReduce(const AllReduce&) = delete;
  AllReduce& operator=(const AllReduce&) = delete;

  /// "ring", "two-level", "shared-memory", "mpi", "nccl"; "serial" in a world of one.
  virtual std::string name() const = 0;
  /// The communicator's name for the transport: "shared memory".
  virtual std::string transport() const { return name(); }
  /// Format of elements in messages: "fp32" or "bf16".
  virtual std::string wire() const { return "fp32"; }
  /// The schedule for this number of elements; empty if the algorithm is not one of Lockstep's.
  virtual std::string schedule(std::size_t) const { return {}; }
  /// Remarks for users, one per line; may be empty.
  virtual std::string description() const { return {}; }
  /// Reduces the first `count` elements `times` times, then waits until the last all-reduce is complete.
  virtual void sum(std::size_t count, std::int64_t times) = 0;
  /// Number of initial batches that are slower than later ones.
  virtual int slow_batches() const { return 0; }
  /// Call before the first batch of another size.
  virtual void begin_size() {}
  /// Copy between this algorithm's memory, from element `first` on, and `values`.
  virtual void load(std::size_t first, std::span<const float> values) = 0;
  virtual void fetch(std::size_t first, std::span<float> values) = 0;

 protected:
  AllReduce() = default;
};

/// Collective: makes the algorithms of these kinds, each with memory for `count` elements. options.wire applies to NCCL
/// and to Lockstep's own algorithms that send messages. With one rank there is at most one algorithm between host
/// memories, "serial", besides MPI's. `control` must outlive the algorithms; it also serves as one of them if it fits.
/// Throws comm::ConsensusError if a kind is not available.
std::vector<std::unique_ptr<AllReduce>> make_all_reduces(comm::MpiSession& session, comm::Communicator& control,
                                                         std::span<const AllReduceAlgorithm> kinds, const Place& place,
                                                         const ExecutionOptions& options, std::size_t count);

/// Host memory that these algorithms need together, in units of the largest all-reduce.
std::size_t host_copies(std::span<const AllReduceAlgorithm> kinds);

}  // namespace lockstep::app
