/// \file
/// Owners of CUDA runtime objects, and the conversion of CUDA errors to exceptions.
#pragma once

#include <memory>
#include <string>

#include <cuda_runtime_api.h>

namespace lockstep::model::cuda {

/// Throws DeviceError with the current device, the failed work (`what`), CUDA's message and a remedy.
[[noreturn]] void fail(cudaError_t error, const char* what);
inline void check(cudaError_t answer, const char* what) {
  if (answer != cudaSuccess) fail(answer, what);
}

/// Returns the thread's current device for messages: "GPU 0 (NVIDIA H200, 0000:1b:00.0)". Does not throw if no device
/// answers.
std::string describe_current_device();

// Destructors ignore errors: after a device failure, each call reports the failure again.
struct StreamDeleter {
  void operator()(cudaStream_t stream) const noexcept { static_cast<void>(cudaStreamDestroy(stream)); }
};
struct EventDeleter {
  void operator()(cudaEvent_t event) const noexcept { static_cast<void>(cudaEventDestroy(event)); }
};
struct GraphDeleter {
  void operator()(cudaGraph_t graph) const noexcept { static_cast<void>(cudaGraphDestroy(graph)); }
};
struct GraphExecDeleter {
  void operator()(cudaGraphExec_t graph) const noexcept { static_cast<void>(cudaGraphExecDestroy(graph)); }
};
using Stream = std::unique_ptr<CUstream_st, StreamDeleter>;
using Event = std::unique_ptr<CUevent_st, EventDeleter>;
using Graph = std::unique_ptr<CUgraph_st, GraphDeleter>;
using GraphExec = std::unique_ptr<CUgraphExec_st, GraphExecDeleter>;

/// Makes a stream that does not synchronise with the legacy default stream.
Stream make_stream();
/// Makes an event for ordering, without timing.
Event make_event();
Event make_timing_event();

}  // namespace lockstep::model::cuda
