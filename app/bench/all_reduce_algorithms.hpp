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

#include "app/options/bench_options.hpp"
#include "app/plan/placement.hpp"
#include "comm/communicator.hpp"

namespace lockstep::app {

/// What these ranks have: `transport` is what a Communicator of Transport::automatic became.
std::vector<AllReduceAlgorithm> usual_algorithms(comm::Transport transport, bool gpus, DeviceChoice device);

/// One all-reduce algorithm, with memory for the largest size. All calls are collective but load() and fetch().
class AllReduce {
 public:
  virtual ~AllReduce() = default;
  AllReduce(const AllReduce&) = delete;
  AllReduce& operator=(const AllReduce&) = delete;

  /// "ring", "two-level", "shared-memory", "mpi", "nccl"; "serial" in a world of one.
  virtual std::string name() const = 0;
  /// What carries the data, as a Communicator names it: "shared memory".
  virtual std::string transport() const { return name(); }
  /// How elements travel between ranks: "fp32" or "bf16".
  virtual std::string wire() const { return "fp32"; }
  /// By which schedule so many elements travel; empty: it has none of ours.
  virtual std::string schedule(std::size_t) const { return {}; }
  /// What is to be known of it, in lines; may be empty.
  virtual std::string description() const { return {}; }
  /// Reduces the first `count` elements so many times, and waits for the last all-reduce.
  virtual void sum(std::size_t count, std::int64_t times) = 0;
  /// What must have happened so often before a batch runs as fast as it does from then on.
  virtual int slow_batches() const { return 0; }
  /// Another size begins.
  virtual void begin_size() {}
  /// Between this algorithm's memory, from element `first`, and `values`.
  virtual void load(std::size_t first, std::span<const float> values) = 0;
  virtual void fetch(std::size_t first, std::span<float> values) = 0;

 protected:
  AllReduce() = default;
};

/// Collective: the algorithms of these kinds, each with memory for `count` elements. options.wire: of those that are
/// ours, where they send messages, and of NCCL. A world of one has at most one between host memories, "serial", beside
/// MPI's. `control` outlives them, and is used as one of them where it fits. Throws comm::AgreedError where a kind is
/// not to be had.
std::vector<std::unique_ptr<AllReduce>> make_all_reduces(comm::MpiSession& session, comm::Communicator& control,
                                                         std::span<const AllReduceAlgorithm> kinds, const Place& place,
                                                         const ExecutionOptions& options, std::size_t count);

/// How many times the memory of the largest all-reduce these algorithms take together on the host.
std::size_t host_copies(std::span<const AllReduceAlgorithm> kinds);

}  // namespace lockstep::app
