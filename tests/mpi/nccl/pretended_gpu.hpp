/// \file
/// A CUDA runtime and a NCCL that only pretend, so that their users can run, and be made to fail, without a GPU: they
/// replace the real functions at link time. Memory is the host's, kernels run when they are enqueued, sums go through
/// MPI; into a graph they come from a thread of NCCL's own, as with a non-blocking communicator. They are as strict as
/// the real ones: a call that is not allowed in a capture, or before a call of NCCL has settled, is refused, and a wait
/// that would last for ever ends the program with a message.
#pragma once

#include <cstddef>
#include <string>

namespace pretended {

/// Faults to simulate on this rank.
struct Faults {
  bool init_fails = false;  ///< NCCL's start, after a while
  bool first_sum_wrong = false;
  bool sums_stand_still = false;     ///< never complete from now on
  bool asynchronous_error = false;   ///< from now on
  std::string warning;               ///< in NCCL's log before an error, or before a sum that never completes
  bool device_fails = false;         ///< from now on
  bool device_stands_still = false;  ///< no event completes from now on
};
Faults& faults();

/// A stream for the computation (a cudaStream_t).
void* make_stream();
void destroy_stream(void* stream);
/// Everything enqueued on `stream`, and on the streams that it forks, is recorded until end_capture; replay() runs it
/// again.
void begin_capture(void* stream);
void end_capture(void* stream);
void replay(void* stream);
/// Calls of ncclCommAbort so far.
int aborts();
/// Calls of cudaEventElapsedTime so far.
std::size_t times_read();
/// Writes `lines` lines of no interest to NCCL's log.
void chatter(std::size_t lines);

}  // namespace pretended
