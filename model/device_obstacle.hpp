/// \file
/// Explains why no GPU can be used, and what to do. These are pure functions of the driver's answer and the
/// environment, so tests can cover answers that the test machine never gives.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "model/device.hpp"

namespace lockstep::model {

/// Answer of the CUDA runtime to a query for devices.
enum class DriverAnswer {
  no_device,              ///< cudaErrorNoDevice
  insufficient_driver,    ///< cudaErrorInsufficientDriver: no driver, or one older than this program's runtime
  stub_library,           ///< cudaErrorStubLibrary
  versions_differ,        ///< cudaErrorSystemDriverMismatch: kernel module and library
  compatibility_refused,  ///< cudaErrorCompatNotSupportedOnDevice
  not_ready,              ///< cudaErrorSystemNotReady
  devices_unavailable,    ///< cudaErrorDevicesUnavailable
  mps_unreachable,        ///< cudaErrorMpsConnectionFailed
  other,
};

struct DriverReport {
  DriverAnswer answer = DriverAnswer::other;
  std::string text;        ///< CUDA's own text: "unknown error (cudaErrorUnknown)"
  int driver_version = 0;  ///< in CUDA's encoding: 12020 is 12.2; 0: no driver
  int runtime_version = 0;
  std::optional<std::string> visible_devices;  ///< CUDA_VISIBLE_DEVICES, if set
};
/// A clause for DeviceSurvey::obstacle.
std::string obstacle_of(const DriverReport& report);

/// True if a program compiled for `architectures` ("80-real, 90-real, 90-virtual", as CMake writes them) runs on a
/// device. Machine code runs on the same major and a minor at least as high. The driver compiles PTX for any later
/// device. Architectures with a letter (90a) run only on themselves.
bool runs_on(std::string_view architectures, int major, int minor);
/// A clause for DeviceSurvey::obstacle when the program runs on none of the devices.
std::string obstacle_of(std::span<const Device> devices, std::string_view architectures);

/// "CUDA 13.0 (sm_80, sm_90, PTX 9.0)" from 13000 and the architectures.
std::string describe_build(int runtime_version, std::string_view architectures);

}  // namespace lockstep::model
