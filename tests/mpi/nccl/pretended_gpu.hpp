/// \file
/// A CUDA runtime and a NCCL that only pretend, so that what is built on them can be run, and made to fail, where there
/// is no GPU: they replace the real functions at link time. Memory is the host's, kernels run when they are enqueued,
/// sums go through MPI; into a graph they come from a thread of NCCL's own, as with a communicator that does not block.
/// They are strict where the real ones are: what must not be done in a capture or before a call of NCCL has settled is
/// refused, and what would wait for ever ends the program with a message.
#pragma once

#include <cstddef>
#include <string>

namespace pretended {

/// What goes wrong on this rank.
struct Faults {
  bool init_fails = false;  ///< NCCL's start, after a while
  bool first_sum_wrong = false;
  bool sums_stand_still = false;     ///< from now on they never get done
  bool asynchronous_error = false;   ///< from now on
  std::string warning;               ///< what NCCL's log says before an error, or before a sum that stands still
  bool device_fails = false;         ///< from now on
  bool device_stands_still = false;  ///< from now on no event gets past
};
Faults& faults();

/// A stream for the computation (a cudaStream_t).
void* make_stream();
void destroy_stream(void* stream);
/// Everything enqueued on `stream`, and on what it forks, is recorded until end_capture; replay() runs it again.
void begin_capture(void* stream);
void end_capture(void* stream);
void replay(void* stream);
/// Calls of ncclCommAbort so far.
int aborts();
/// Calls of cudaEventElapsedTime so far.
std::size_t times_read();
/// NCCL's log gets `lines` lines of no interest.
void chatter(std::size_t lines);

}  // namespace pretended
