/// \file
/// The ways there are to sum over all ranks, as a benchmark drives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/options.hpp"
#include "app/placement.hpp"
#include "comm/communicator.hpp"

namespace lockstep::app {

enum class WayKind { ring, two_level, shared_memory, mpi, nccl };

/// As --ways takes it: "shared-memory".
std::string way_name(WayKind kind);
/// Names with commas between them, in any order; a way named twice counts once. Throws std::invalid_argument saying
/// what is wrong with `text`, with all valid names.
std::vector<WayKind> parse_ways(const std::string& text);

/// What these ranks have: `transport` is what a Communicator of Transport::automatic became.
std::vector<WayKind> usual_ways(std::string_view transport, bool gpus, const std::string& device);

/// A way to sum, with memory for the largest size. All calls are collective but load() and fetch().
class Way {
 public:
  virtual ~Way() = default;
  Way(const Way&) = delete;
  Way& operator=(const Way&) = delete;

  /// "ring", "two-level", "shared-memory", "mpi", "nccl"; "serial" where there is nothing to sum.
  virtual std::string name() const = 0;
  /// What carries the data, as Communicator and Reduction name it: "shared memory".
  virtual std::string transport() const { return name(); }
  /// How elements travel between ranks: "fp32" or "bf16".
  virtual std::string wire() const { return "fp32"; }
  /// What is to be known of it, in lines; may be empty.
  virtual std::string description() const { return {}; }
  /// Sums the first `count` elements so many times over, and waits for the last sum.
  virtual void sum(std::size_t count, std::int64_t times) = 0;
  /// What must have happened so often before a batch runs as fast as it does from then on.
  virtual int slow_batches() const { return 0; }
  /// Another size begins.
  virtual void begin_size() {}
  /// Between this way's memory, from element `first`, and `values`.
  virtual void load(std::size_t first, std::span<const float> values) = 0;
  virtual void fetch(std::size_t first, std::span<float> values) = 0;

 protected:
  Way() = default;
};

/// Collective: the ways of these kinds, each with memory for `count` elements. options.wire: of those that are ours,
/// where they send messages, and of NCCL. A world of one has at most one between
/// host memories, "serial", beside MPI's. `control` outlives them, and is used as one of them where it fits. Throws
/// comm::AgreedError where a kind is not to be had.
std::vector<std::unique_ptr<Way>> make_ways(comm::MpiSession& session, comm::Communicator& control,
                                            std::span<const WayKind> kinds, const Place& place,
                                            const ExecutionOptions& options, std::size_t count);

/// How many times the memory of the largest sum the ways of these kinds take together on a host's side.
std::size_t host_copies(std::span<const WayKind> kinds);

}  // namespace lockstep::app
