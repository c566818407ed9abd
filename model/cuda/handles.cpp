#include "model/cuda/handles.hpp"

#include <fmt/format.h>

#include "model/cuda/device_survey.hpp"
#include "model/device.hpp"

namespace lockstep::model::cuda {

namespace {

/// Returns the remedy for an error. The CUDA manual lists the errors that leave the context unusable.
const char* remedy(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "; a smaller --batch needs less memory";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return "; build lockstep with -DLOCKSTEP_CUDA_ARCHITECTURES for this GPU, or update its driver";
    case cudaErrorDevicesUnavailable:
      return "; another process has it for itself (nvidia-smi shows which)";
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
      return "; the hardware reported an error that it could not correct, nvidia-smi -q and the system's log know "
             "more. "
             "This process can do no more on that GPU and must end";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
      return "; this process can do no more on that GPU and must end. compute-sanitizer names the place; please report "
             "it";
    default:
      return "";
  }
}

}  // namespace

void fail(cudaError_t error, const char* what) {
  static_cast<void>(cudaGetLastError());  // clears the error, so that the next check does not report it
  throw DeviceError(fmt::format("{}: {}: {} ({}){}", describe_current_device(), what, cudaGetErrorString(error),
                                cudaGetErrorName(error), remedy(error)));
}

std::string describe_current_device() {
  int index = 0;
  cudaDeviceProp properties{};
  if (cudaGetDevice(&index) != cudaSuccess) return "a GPU";
  if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) return fmt::format("GPU {}", index);
  return fmt::format("GPU {} ({}, {})", index, properties.name, pci_of(properties));
}

Stream make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  return Stream(stream);
}

Event make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
  return Event(event);
}

Event make_timing_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDefault), "making an event");
  return Event(event);
}

}  // namespace lockstep::model::cuda
