#include "model/cuda/device_survey.hpp"

#include <cstdlib>

#include <fmt/format.h>

#include "model/cuda/handles.hpp"
#include "model/device_obstacle.hpp"

namespace lockstep::model {

namespace {

DriverAnswer answer_of(cudaError_t error) {
  switch (error) {
    case cudaErrorNoDevice:
      return DriverAnswer::no_device;
    case cudaErrorInsufficientDriver:
      return DriverAnswer::insufficient_driver;
    case cudaErrorStubLibrary:
      return DriverAnswer::stub_library;
    case cudaErrorSystemDriverMismatch:
      return DriverAnswer::versions_differ;
    case cudaErrorCompatNotSupportedOnDevice:
      return DriverAnswer::compatibility_refused;
    case cudaErrorSystemNotReady:
      return DriverAnswer::not_ready;
    case cudaErrorDevicesUnavailable:
      return DriverAnswer::devices_unavailable;
    case cudaErrorMpsConnectionFailed:
      return DriverAnswer::mps_unreachable;
    default:
      return DriverAnswer::other;
  }
}

std::string obstacle_after(cudaError_t error) {
  DriverReport report{.answer = answer_of(error),
                      .text = fmt::format("{} ({})", cudaGetErrorString(error), cudaGetErrorName(error)),
                      .driver_version = 0,
                      .runtime_version = CUDART_VERSION,
                      .visible_devices = {}};
  if (cudaDriverGetVersion(&report.driver_version) != cudaSuccess) report.driver_version = 0;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"); visible != nullptr) report.visible_devices = visible;
  static_cast<void>(cudaGetLastError());
  return obstacle_of(report);
}

}  // namespace

namespace cuda {

std::string pci_of(const cudaDeviceProp& properties) {
  return fmt::format("{:04x}:{:02x}:{:02x}.0", properties.pciDomainID, properties.pciBusID, properties.pciDeviceID);
}

Device describe(int index, const cudaDeviceProp& properties) {
  Device device{.index = index,
                .name = properties.name,
                .pci = pci_of(properties),
                .uuid = "GPU-",
                .major = properties.major,
                .minor = properties.minor,
                .processors = properties.multiProcessorCount,
                .shared_bytes = properties.sharedMemPerBlockOptin,
                .bytes = properties.totalGlobalMem,
                .free_bytes = 0};
  for (std::size_t i = 0; i < sizeof properties.uuid.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) device.uuid += '-';
    device.uuid += fmt::format("{:02x}", static_cast<unsigned char>(properties.uuid.bytes[i]));
  }
  return device;
}

}  // namespace cuda

DeviceSurvey survey_devices() {
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count == 0) error = cudaErrorNoDevice;
  if (error != cudaSuccess) return {.devices = {}, .obstacle = obstacle_after(error)};

  DeviceSurvey survey;
  std::vector<Device> unsuitable;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    error = cudaGetDeviceProperties(&properties, index);
    if (error != cudaSuccess) return {.devices = {}, .obstacle = obstacle_after(error)};
    Device device = cuda::describe(index, properties);
    const bool suitable = runs_on(LOCKSTEP_CUDA_ARCHITECTURES, device.major, device.minor);
    (suitable ? survey.devices : unsuitable).push_back(std::move(device));
  }
  if (survey.devices.empty()) survey.obstacle = obstacle_of(unsuitable, LOCKSTEP_CUDA_ARCHITECTURES);
  if (survey.devices.empty()) return survey;
  if (std::string missing = gpu_library_error(); !missing.empty())
    return {.devices = {}, .obstacle = std::move(missing)};
  return survey;
}

std::size_t free_memory(const Device& device) {
  std::size_t available = 0, total = 0;
  cuda::check(cudaSetDevice(device.index), "opening it");
  cuda::check(cudaMemGetInfo(&available, &total), "asking for its free memory");
  return available;
}

std::string cuda_build() { return describe_build(CUDART_VERSION, LOCKSTEP_CUDA_ARCHITECTURES); }

}  // namespace lockstep::model
