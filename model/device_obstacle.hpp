/// \file
/// Why no GPU can be used, in words that say what to do. Pure functions of what the driver and the environment
/// answered, so that every answer can be tried on a machine that never gives it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "model/device.hpp"

namespace lockstep::model {

/// What the CUDA runtime said when it was asked for devices.
enum class DriverAnswer {
  no_device,              ///< cudaErrorNoDevice
  insufficient_driver,    ///< cudaErrorInsufficientDriver: none at all, or an older one than this program's runtime
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
  std::string text;        ///< what CUDA calls it: "unknown error (cudaErrorUnknown)"
  int driver_version = 0;  ///< as CUDA counts: 12020 is 12.2; 0: there is no driver
  int runtime_version = 0;
  std::optional<std::string> visible_devices;  ///< CUDA_VISIBLE_DEVICES, where it is set
};
/// A clause for DeviceSurvey::obstacle.
std::string obstacle_of(const DriverReport& report);

/// Whether a program compiled for `architectures` ("80-real, 90-real, 90-virtual", as CMake writes them) runs on a
/// device: machine code runs on the same major and a minor at least as high, PTX is compiled by the driver for any
/// later device; architectures with a letter (90a) run on themselves alone.
bool runs_on(std::string_view architectures, int major, int minor);
/// A clause for DeviceSurvey::obstacle when the program runs on none of the devices.
std::string obstacle_of(std::span<const Device> devices, std::string_view architectures);

/// "CUDA 13.0 (sm_80, sm_90, PTX 9.0)" from 13000 and the architectures.
std::string describe_build(int runtime_version, std::string_view architectures);

}  // namespace lockstep::model
