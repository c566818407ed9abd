/// \file
/// The part of CUDA's runtime that model/cuda uses, on a host and asynchronous. Device memory is host memory. Enqueued
/// work waits in its stream until a caller synchronises, or until chance lets it run, in any order that streams and
/// events allow. Streams are recorded into graphs of their dependencies, and replayed from them. With
/// support/cuda_on_cpu.cpp, which runs the kernels, and support/cublaslt_on_cpu.cpp the whole CUDA backend computes
/// without a GPU.
///
/// It compares vector clocks when work is enqueued, and so finds in any order of running:
/// - a missing event: work on two streams, or in two branches of a graph, uses the same memory without an order;
/// - a late reuse: the host changes pinned memory before it has waited for the copy out of it;
/// - calls that a capture does not allow, and a fork into it that is not joined;
/// - copies, fills and products that go past the end of an allocation: a wrong stride.
/// A read of the host that comes too early shows in the data: until a copy to pinned memory has run, its target is
/// poison.
///
/// It knows the pointers in a kernel's arguments, but not the ranges that the kernel accesses. So two accesses conflict
/// only if they begin at one address, or if one of them is a copy, a fill or a product.
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
/// For libraries on this runtime: `work` runs in the order of the stream, or becomes part of the capture. Work that
/// others finish is over when `is_over` returns true, after `work` has begun it; a thread of its own may enqueue it.
cudaError_t enqueue_on_cpu(cudaStream_t stream, const char* name, std::vector<MemoryAccess> accesses,
                           std::function<void()> work, std::function<bool()> is_over = nullptr);

/// Sets the order of streams from now on: every third seed leaves all work until a caller waits for it.
void order_streams(std::uint64_t seed);
/// Sets the number of devices, all alike; initially 1.
void pretend_devices(int count);
/// Plants faults: neither streams nor the host wait for events any more, or they wait again.
void ignore_events(bool ignore);
/// Plants one fault: of the streams' waits for events from now on, number `number` (from 0) is left out; -1: none.
/// Returns the number of waits since the last call.
std::int64_t ignore_wait(std::int64_t number);
/// Longest chain of dependent operations in the last graph.
std::size_t longest_chain();
/// From now on faults are printed to stderr when they are found: for programs that may end before they query them.
void tell_faults();
/// The faults since the last call, one sentence each. A test that does not query them passes in spite of them.
std::vector<std::string> take_stream_faults();

}  // namespace lockstep::test
