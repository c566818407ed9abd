/// \file
/// Checks that the ranks of a host have enough memory for their plans. Without this check the kernel kills processes
/// without a message, often hours later.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "app/place/placement.hpp"
#include "app/plan/workload.hpp"
#include "comm/communicator.hpp"
#include "io/datasets/dataset.hpp"
#include "model/state/memory_plan.hpp"

namespace lockstep::app {

/// Host memory of one rank, in bytes.
struct HostMemoryPlan {
  std::uint64_t arenas = 0;    ///< parameters, gradients, optimiser, average, activations; 0 if they are on a GPU
  std::uint64_t snapshot = 0;  ///< copy of the state for checkpoints
  std::uint64_t input = 0;     ///< batches in flight, and blocks of chunked or compressed data
  std::uint64_t page_tables =
      0;  ///< page tables for the gradients of all ranks that share memory; each rank maps them all
  std::uint64_t program = std::uint64_t{128} << 20;  ///< libraries, MPI's buffers, the rest

  std::uint64_t total() const noexcept { return arenas + snapshot + input + page_tables + program; }
};
/// Returns "16.0 GiB for the network, 1.2 GiB for checkpoints, ...", without zero amounts.
std::string describe(const HostMemoryPlan& memory);

/// Returns the memory of a training rank with `plan`. The whole copy for checkpoints counts for rank 0, even if several
/// writers share it. `sharing`: Communicator::ranks_sharing_memory().
HostMemoryPlan training_memory(const Place& place, const model::MemoryPlan& plan, const Workload& workload, int rank,
                               int sharing = 1);
/// Returns the size of the page tables for `mapped` bytes in pages of 4 KiB, the usual page size of shared memory.
constexpr std::uint64_t page_table_bytes(std::uint64_t mapped) noexcept { return mapped / 4096 * 8; }
/// Returns the memory of a rank that evaluates `batch` samples at once.
HostMemoryPlan evaluation_memory(const Place& place, const model::MemoryPlan& plan, const io::Dataset& dataset,
                                 std::int64_t batch);

/// Memory that a rank needs, and the limits that apply to it.
struct MemoryView {
  static constexpr std::uint64_t kUnknown = std::numeric_limits<std::uint64_t>::max();

  std::string host;
  HostMemoryPlan wanted;
  std::uint64_t host_free = kUnknown, host_bytes = kUnknown;  ///< free (with swap and reclaimable file pages) and total
  std::string group;  ///< control group with the least free memory; "": no limit
  std::uint64_t group_free = kUnknown, group_limit = kUnknown;
  std::uint64_t address_space = kUnknown;  ///< bytes that this process may still allocate (ulimit -v)
};
/// Returns the value of the line "NAME: N kB" of /proc/meminfo in bytes; `otherwise` if there is no such line.
std::uint64_t meminfo_bytes(const std::string& meminfo, const std::string& name, std::uint64_t otherwise);
/// Returns the view of this process.
MemoryView look_at_memory(const HostMemoryPlan& wanted);

/// Returns "" if the memory suffices: that of each host for its ranks together, that of each control group for its
/// ranks together, and the address space of each rank. Otherwise returns the ranks, the missing memory and the remedy.
std::string host_memory_complaint(std::span<const MemoryView> ranks);

/// Collective. Call before any of the memory is allocated. Throws comm::ConsensusError with the text of
/// host_memory_complaint() unless it is "".
void require_host_memory(comm::Communicator& communicator, const HostMemoryPlan& wanted);

}  // namespace lockstep::app
