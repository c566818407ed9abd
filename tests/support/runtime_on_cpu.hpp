/// \file
/// The part of CUDA's runtime that model/cuda uses, on a host and asynchronous: device memory is host memory, and what
/// is enqueued waits in its stream until somebody synchronises, or until chance lets it run, in any order that streams
/// and events allow. Streams are recorded into graphs of their dependencies, and replayed from them. With
/// support/cuda_on_cpu.cpp, which runs the kernels, and support/cublaslt_on_cpu.cpp the whole CUDA backend computes
/// without a GPU.
///
/// What it finds, in any order of running, because it compares vector clocks when work is enqueued:
/// - a missing event: work on two streams, or in two branches of a graph, uses the same memory without an order;
/// - a late reuse: the host changes pinned memory before it has waited for the copy out of it;
/// - calls that a capture does not allow, and a fork into it that is not joined;
/// - copies, fills and products that go past the end of an allocation: a wrong stride.
/// The host's reading too early is found by what it reads: until a copy to pinned memory has run, its target is poison.
///
/// What it does not know: of a kernel's arguments it knows the pointers, not how far the kernel goes from there, so
/// that two accesses meet only where they begin at one address or one of them is a copy, a fill or a product.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

namespace lockstep::test {

struct MemoryAccess {
  const void* begin;
  std::size_t bytes;
  bool writes;
};
/// For libraries on this runtime: `work` comes to its turn in the stream, or becomes part of the capture. What others
/// finish is over when `is_over` says so, after `work` has begun it; it may be enqueued by a thread of its own.
cudaError_t enqueue_on_cpu(cudaStream_t stream, const char* name, std::vector<MemoryAccess> accesses,
                           std::function<void()> work, std::function<bool()> is_over = nullptr);

/// The order in which streams run, from now on: every third seed leaves all work until somebody waits for it.
void order_streams(std::uint64_t seed);
/// So many devices from now on, all alike; 1 at first.
void pretend_devices(int count);
/// Plants faults: neither streams nor the host wait for events any more, or again.
void ignore_events(bool ignore);
/// Plants one fault: of the streams' waits for events from now on, the one of this number (from 0) is left out; -1:
/// none is. Returns how many there have been since the last call.
std::int64_t ignore_wait(std::int64_t number);
/// Of the graph that was made last: how many of its operations wait for each other, one after another, at most.
std::size_t longest_chain();
/// From now on stderr tells what is found, when it is found: for programs that may not live to take it.
void tell_faults();
/// What was found since the last call, a sentence each. Whoever does not ask has a test that passes in spite of it.
std::vector<std::string> take_stream_faults();

}  // namespace lockstep::test
