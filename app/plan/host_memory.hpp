/// \file
/// Whether the ranks of a host have memory for what they are about to take: the kernel ends processes that have not
/// without a word, often hours later.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "app/plan/placement.hpp"
#include "app/plan/workload.hpp"
#include "comm/communicator.hpp"
#include "io/datasets/dataset.hpp"
#include "model/state/memory_plan.hpp"

namespace lockstep::app {

/// Bytes of host memory that one rank takes.
struct HostMemoryPlan {
  std::uint64_t arenas = 0;       ///< parameters, gradients, optimiser, average, activations; 0 where they lie on a GPU
  std::uint64_t snapshot = 0;     ///< the copy of the state that checkpoints are written from
  std::uint64_t input = 0;        ///< batches in flight, and blocks of chunked or compressed data
  std::uint64_t page_tables = 0;  ///< of the gradients of all ranks that share memory, which each maps
  std::uint64_t program = std::uint64_t{128} << 20;  ///< libraries, MPI's buffers, the rest

  std::uint64_t total() const noexcept { return arenas + snapshot + input + page_tables + program; }
};
/// "16.0 GiB for the network, 1.2 GiB for checkpoints, ...", without what is nothing.
std::string describe(const HostMemoryPlan& memory);

/// Of a rank in training that has planned `plan` for its place. Rank 0 counts the whole copy for checkpoints, also
/// where several writers share it. `sharing`: Communicator::ranks_sharing_memory().
HostMemoryPlan training_memory(const Place& place, const model::MemoryPlan& plan, const Workload& workload, int rank,
                               int sharing = 1);
/// What a process takes to map so many bytes in pages of 4 KiB, as shared memory mostly comes.
constexpr std::uint64_t page_table_bytes(std::uint64_t mapped) noexcept { return mapped / 4096 * 8; }
/// Of a rank that evaluates `batch` samples at once.
HostMemoryPlan evaluation_memory(const Place& place, const model::MemoryPlan& plan, const io::Dataset& dataset,
                                 std::int64_t batch);

/// What a rank wants, and what it sees where it is.
struct MemoryView {
  static constexpr std::uint64_t kUnknown = std::numeric_limits<std::uint64_t>::max();

  std::string host;
  HostMemoryPlan wanted;
  std::uint64_t host_free = kUnknown, host_bytes = kUnknown;  ///< with swap; without file pages that can be dropped
  std::string group;                                          ///< control group with the least left; "": no limit
  std::uint64_t group_free = kUnknown, group_limit = kUnknown;
  std::uint64_t address_space = kUnknown;  ///< that this process may still take (ulimit -v)
};
/// "NAME: N kB" of /proc/meminfo in bytes; `otherwise` where it is not there.
std::uint64_t meminfo_bytes(const std::string& meminfo, const std::string& name, std::uint64_t otherwise);
/// Of this process.
MemoryView look_at_memory(const HostMemoryPlan& wanted);

/// Empty where everybody has enough: the ranks of a host together of the host's memory, those of a control group
/// together of the group's, each of its own address space. Else who lacks what, and what to do.
std::string host_memory_complaint(std::span<const MemoryView> ranks);

/// Collective, before any of it is taken. Throws comm::AgreedError with the complaint, if there is one.
void require_host_memory(comm::Communicator& communicator, const HostMemoryPlan& wanted);

}  // namespace lockstep::app
