/// \file
/// Owners of the CUDA runtime's objects, and the one place where its answers become exceptions.
#pragma once

#include <memory>
#include <string>

#include <cuda_runtime_api.h>

namespace lockstep::model::cuda {

/// Throws DeviceError: the current device, `what` was being done, what CUDA says, and what to do about it.
[[noreturn]] void fail(cudaError_t error, const char* what);
inline void check(cudaError_t answer, const char* what) {
  if (answer != cudaSuccess) fail(answer, what);
}

/// "GPU 0 (NVIDIA H200, 0000:1b:00.0)": the device that is current in this thread, for messages. Never throws for want
/// of a device that answers.
std::string describe_current_device();

// Destruction ignores what CUDA answers: after a device's failure every call reports that failure.
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

/// Does not wait for the legacy default stream, nor that one for it.
Stream make_stream();
/// For order alone: no time is taken.
Event make_event();
Event make_timing_event();

}  // namespace lockstep::model::cuda
