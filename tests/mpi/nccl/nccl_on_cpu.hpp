/// \file
/// NCCL on a host, over MPI, for ranks whose GPUs are support/runtime_on_cpu.hpp; it replaces the library at link time.
/// Collectives are in place, as comm/nccl needs them. As with NCCL's non-blocking communicators a call returns before
/// anything is enqueued: the communicator's own thread enqueues it, or adds it to the graph that the caller records,
/// once the caller has asked twice for its state. Until then the stream belongs to that thread. A collective whose turn
/// has come is over when all ranks have reached it. A call that the real library does not allow ends the program.
#pragma once

#include <cstddef>
#include <string>

namespace lockstep::test {

/// Faults to simulate on this rank, from now on.
struct NcclFaults {
  bool init_fails = false;
  bool first_sum_wrong = false;
  bool sums_stand_still = false;  ///< collectives never complete
  bool asynchronous_error = false;
  std::string warning = {};  ///< in NCCL's log before an error, or before a collective that never completes
};
NcclFaults& nccl_faults();

/// Number of calls of ncclCommAbort so far.
int nccl_aborts();
/// Writes `lines` lines of no interest to NCCL's log.
void chatter(std::size_t lines);

}  // namespace lockstep::test
