/// \file
/// What a communicator is made with: plain values that options and plans hold, too.
#pragma once

#include <functional>
#include <string_view>

#include "comm/all_reduce_limits.hpp"

namespace lockstep::comm {

/// How the ranks of a communicator reach each other's data.
enum class Transport {
  automatic,  ///< only to ask for: as the ranks lie, see make_communicator
  serial,     ///< a world of one
  shared_memory,
  two_level,
  ring,
  mpi,  ///< the library's own sums
  nccl
};
/// "serial", "shared memory", "two-level", "ring", "mpi", "nccl": for the plan and the logs.
std::string_view name_of(Transport transport) noexcept;

/// The numbers that sums over ranks of different hosts, or of different GPUs, travel as. Within a host's memory they
/// are read where they lie, in full.
enum class WireFormat {
  fp32,
  /// Half the bytes: each rank rounds what it passes on to bfloat16 (to nearest, ties to even), once per element.
  bf16,
  /// bf16, and each rank adds what its rounding took away to its part of the next sum (error feedback: Seide et al.
  /// 2014; Karimireddy et al. 2019). Between hosts only.
  bf16_feedback,
  /// A quarter of the bytes: 8-bit integers with a scale for each 64 of them (int8_blocks.hpp), with error feedback.
  /// Between hosts only.
  int8_feedback,
};
/// Each rank keeps what its rounding took away, as many float32 as there are numbers.
constexpr bool keeps_errors(WireFormat format) noexcept {
  return format == WireFormat::bf16_feedback || format == WireFormat::int8_feedback;
}

struct CommunicatorOptions {
  Transport transport = Transport::automatic;  ///< automatic: as the ranks lie, see make_communicator
  WireFormat wire = WireFormat::fp32;          ///< of sums of float32 between hosts
  AllReduceChoice all_reduce = {};             ///< of sums between hosts
  bool overlap = false;                        ///< between hosts: a thread drives collectives beside the computation
  double deadline_seconds = 60;                ///< longest wait for a peer before it is called dead; > 0
  double excuse_seconds = 0;  ///< a peer in a long operation is waited for so long at least; else 30 deadlines
  int threads = 1;            ///< that compute, in this process
  /// Called every 0.1 s or so by whoever waits for peers in a collective, in the thread that waits. PeerError that it
  /// throws ends the wait.
  std::function<void()> while_waiting = {};
  int pretended_machine = 0;  ///< ranks that differ here believe in different machines, wherever they are (tests)
};

}  // namespace lockstep::comm
