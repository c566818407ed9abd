/// \file
/// Options of a communicator: plain values that other options and plans can hold, too.
#pragma once

#include <functional>
#include <string_view>

#include "comm/all_reduce_limits.hpp"

namespace lockstep::comm {

/// Transport of data between the ranks of a communicator.
enum class Transport {
  automatic,  ///< for requests only: chosen by the ranks' placement, see make_communicator
  serial,     ///< a world of one
  shared_memory,
  two_level,
  ring,
  mpi,  ///< the MPI library's own sums
  nccl
};
/// "serial", "shared memory", "two-level", "ring", "mpi", "nccl": for the plan and the logs.
std::string_view name_of(Transport transport) noexcept;

/// Number format of sums between ranks of different hosts, or of different GPUs. Within a host's memory sums read the
/// data in place, in full precision.
enum class WireFormat {
  fp32,
  /// Half the bytes: each rank rounds outgoing numbers to bfloat16 (to nearest, ties to even), once per element.
  bf16,
  /// bf16, and each rank adds its rounding error to its part of the next sum (error feedback: Seide et al. 2014;
  /// Karimireddy et al. 2019). Between hosts only.
  bf16_feedback,
  /// A quarter of the bytes: 8-bit integers with a scale per 64 of them (int8_blocks.hpp), with error feedback. Between
  /// hosts only.
  int8_feedback,
};
/// True if each rank keeps its rounding errors: one float32 per number.
constexpr bool keeps_errors(WireFormat format) noexcept {
  return format == WireFormat::bf16_feedback || format == WireFormat::int8_feedback;
}

struct CommunicatorOptions {
  Transport transport = Transport::automatic;  ///< automatic: by the ranks' placement, see make_communicator
  WireFormat wire = WireFormat::fp32;          ///< format of float32 sums between hosts
  AllReduceChoice all_reduce = {};             ///< schedules of sums between hosts
  bool overlap = false;          ///< between hosts: a thread drives collectives concurrently with the computation
  double deadline_seconds = 60;  ///< longest wait for a peer before it is called dead; > 0
  double excuse_seconds = 0;     ///< least patience with a peer in a long operation; otherwise 30 deadlines
  int threads = 1;               ///< number of computing threads in this process
  /// Called every 0.1 s or so in a thread that waits for peers in a collective. A PeerError that it throws ends the
  /// wait.
  std::function<void()> while_waiting = {};
  int pretended_machine = 0;  ///< ranks with different values behave as if on different machines (tests)
};

}  // namespace lockstep::comm
