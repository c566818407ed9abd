#include "comm/nccl/device_handles.hpp"

#include <stdexcept>

#include <fmt/format.h>

#include "comm/host/reduction_memory.hpp"

namespace lockstep::comm {

void DestroyEvent::operator()(CUevent_st* event) const noexcept { cudaEventDestroy(event); }
void DestroyStream::operator()(CUstream_st* stream) const noexcept { cudaStreamDestroy(stream); }
void FreeDeviceMemory::operator()(void* memory) const noexcept { cudaFree(memory); }

std::string cuda_text(cudaError_t error) {
  return fmt::format("{} ({})", cudaGetErrorString(error), cudaGetErrorName(error));
}

void require_success(cudaError_t error, const std::string& who, const char* call) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw std::runtime_error(fmt::format("{}: {}: {}", who, call, cuda_text(error)));
}

cudaError_t query_event(cudaEvent_t event) {
  const cudaError_t state = cudaEventQuery(event);
  if (state == cudaErrorNotReady) cudaGetLastError();
  return state;
}

DeviceEvent make_event(unsigned flags) {
  cudaEvent_t event = nullptr;
  const cudaError_t error = cudaEventCreateWithFlags(&event, flags);
  if (error != cudaSuccess) {
    cudaGetLastError();
    throw std::runtime_error(fmt::format("cudaEventCreate: {}", cuda_text(error)));
  }
  return DeviceEvent(event);
}

DeviceStream make_urgent_stream() {
  int least = 0, greatest = 0;
  cudaStream_t stream = nullptr;
  cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
  if (error == cudaSuccess) error = cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest);
  if (error != cudaSuccess) {
    cudaGetLastError();
    throw std::runtime_error(fmt::format("cudaStreamCreate: {}", cuda_text(error)));
  }
  return DeviceStream(stream);
}

std::optional<double> seconds_between(const DeviceEvent& first, const DeviceEvent& second) {
  float milliseconds = 0;
  if (cudaEventElapsedTime(&milliseconds, first.get(), second.get()) != cudaSuccess) {
    cudaGetLastError();
    return std::nullopt;
  }
  return static_cast<double>(milliseconds) / 1000;
}

DeviceMemory take_device_memory(std::size_t bytes, const std::string& who) {
  void* memory = nullptr;
  require_success(cudaMalloc(&memory, bytes), who,
                  fmt::format("cudaMalloc of {:.1f} MiB", static_cast<double>(bytes) / (1 << 20)).c_str());
  return DeviceMemory(memory);
}

std::unique_ptr<std::pmr::memory_resource> as_resource(DeviceMemory memory, std::size_t bytes) {
  auto* const begin = static_cast<std::byte*>(memory.release());
  return std::make_unique<ReductionMemory>(begin, bytes, [begin] { FreeDeviceMemory{}(begin); });
}

std::string device_label(const std::string& host, const DeviceCommunicatorOptions& options) {
  return fmt::format("host {}, {}", host,
                     options.device_name.empty() ? fmt::format("GPU {}", options.device) : options.device_name);
}

std::string at_step(const char* what, std::int64_t step) {
  return step < 0 ? std::string(what) : fmt::format("step {}: {}", step, what);
}

}  // namespace lockstep::comm
