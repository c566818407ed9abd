/// \file
/// An asynchronous implementation, on a host, of the part of CUDA's runtime that model/cuda uses. Device memory is host
/// memory. Enqueued work waits in its stream until a caller synchronises, or until it runs at random, in any order that
/// streams and events allow. Streams can be captured into graphs of their dependencies, which are replayed. With
/// support/cuda_on_cpu.cpp, which runs the kernels, and support/cublaslt_on_cpu.cpp, the whole CUDA backend computes
/// without a GPU.
///
/// It compares vector clocks when work is enqueued, so it finds these faults in any order of execution:
/// - a missing event: work on two streams, or in two branches of a graph, uses the same memory without an order;
/// - a late reuse: the host changes pinned memory before it has waited for the copy from it;
/// - calls that a capture does not allow, and streams that fork into a capture but do not join;
/// - copies, fills and products that exceed an allocation, for example because of a wrong stride.
/// If the host reads too early, the data show it: until a copy to pinned memory has run, its target contains poison.
///
/// It knows the pointers in a kernel's arguments, but not the ranges that the kernel accesses. So two accesses conflict
/// only if they begin at the same address, or if one of them is a copy, a fill or a product.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>

namespace lockstep::test {

struct MemoryAccess {
  const void* begin;
  std::size_t bytes;
  bool writes;
};
/// For libraries on this runtime: `work` runs in the order of the stream, or becomes part of the capture. With
/// `is_over`, `work` only begins an operation that other threads finish; it is complete when `is_over` returns true. A
/// library may enqueue such work from its own thread.
cudaError_t enqueue_on_cpu(cudaStream_t stream, const char* name, std::vector<MemoryAccess> accesses,
                           std::function<void()> work, std::function<bool()> is_over = nullptr);

/// Sets the order of streams from now on. With every third seed, all work waits until a caller waits for it.
void order_streams(std::uint64_t seed);
/// Sets the number of devices, which are all equal; initially 1.
void pretend_devices(int count);
/// Injects faults: from now on neither streams nor the host wait for events, or they wait again.
void ignore_events(bool ignore);
/// Injects one fault: leaves out wait `number` (from 0) of the streams' waits for events from now on; -1: none. Returns
/// the number of waits since the last call.
std::int64_t ignore_wait(std::int64_t number);
/// Plants a fault: queries of events give this error from now on: cudaErrorNotReady for a device that stands still.
void answer_queries(cudaError_t error);
/// From now on it is a fault if the host waits, without a query, for work that others finish: no deadline ends that.
void forbid_waits_for_others();
/// `stream` belongs to that thread of a library, which enqueues to it: another thread's calls come too early. The
/// default is no thread.
void claim_stream(cudaStream_t stream, std::thread::id thread);
/// Number of calls of cudaEventElapsedTime so far.
std::size_t times_read();
/// Longest chain of dependent operations in the last graph.
std::size_t longest_chain();
/// From now on, prints faults to stderr when they are found: for programs that may end before they query them.
void tell_faults();
/// Returns the faults since the last call, one sentence each. A test that does not query them passes even if there are
/// faults.
std::vector<std::string> take_stream_faults();

}  // namespace lockstep::test
