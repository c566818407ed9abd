#include "model/device.hpp"
#include "model/make_cuda_backend.hpp"

namespace lockstep::model {

namespace {

constexpr const char* kObstacle = "this lockstep was built without CUDA";

}  // namespace

DeviceSurvey survey_devices() { return {.devices = {}, .obstacle = kObstacle}; }

std::string gpu_library_error() { return kObstacle; }

std::string cudnn_error() { return kObstacle; }

std::size_t free_memory(const Device&) { throw DeviceError(kObstacle); }

std::string cuda_build() { return "without CUDA"; }

std::unique_ptr<Backend> make_cuda_backend(const BackendOptions&) {
  throw DeviceError(std::string("no GPU can be used: ") + kObstacle);
}

}  // namespace lockstep::model
