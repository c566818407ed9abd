/// \file
/// Owners of CUDA objects for a communicator: events, streams and memory of the calling thread's device. Functions that
/// make one throw std::runtime_error, for all_succeed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string>

#include <cuda_runtime.h>

#include "comm/device_communicator.hpp"
#include "comm/session/backoff.hpp"

namespace lockstep::comm {

/// A CUDA event, owned.
struct DestroyEvent {
  void operator()(::CUevent_st* event) const noexcept;
};
using DeviceEvent = std::unique_ptr<::CUevent_st, DestroyEvent>;
struct DestroyStream {
  void operator()(::CUstream_st* stream) const noexcept;
};
using DeviceStream = std::unique_ptr<::CUstream_st, DestroyStream>;

/// Memory of the GPU, owned.
struct FreeDeviceMemory {
  void operator()(void* memory) const noexcept;
};
using DeviceMemory = std::unique_ptr<void, FreeDeviceMemory>;

/// Pace of polling a device: a sleep of 20 us takes about 70 us, too much for steps of less than 10 ms.
inline constexpr Backoff::Pace kDevicePace{.spin = std::chrono::microseconds(50),
                                           .yield = std::chrono::microseconds(10'000),
                                           .sleep = std::chrono::microseconds(20)};

/// CUDA's message and name of an error.
std::string cuda_text(cudaError_t error);
/// Throws for an error: `who`, the call, and CUDA's message.
void require_success(cudaError_t error, const std::string& who, const char* call);
/// Returns the state of an event. Leaves no trace in cudaGetLastError().
cudaError_t query_event(cudaEvent_t event);

DeviceEvent make_event(unsigned flags);
/// A stream of the highest priority, not ordered with any other.
DeviceStream make_urgent_stream();
/// Seconds between two completed events; negative if they are in reverse order, nullopt if one was never recorded.
std::optional<double> seconds_between(const DeviceEvent& first, const DeviceEvent& second);

DeviceMemory take_device_memory(std::size_t bytes, const std::string& who);
std::unique_ptr<std::pmr::memory_resource> as_resource(DeviceMemory memory, std::size_t bytes);

/// A rank's device as messages name it: "host node3, NVIDIA H200 (0000:1b:00.0)".
std::string device_label(const std::string& host, const DeviceCommunicatorOptions& options);

/// "step 12: the gradients"; only `what` for a negative step.
std::string at_step(const char* what, std::int64_t step);

}  // namespace lockstep::comm
