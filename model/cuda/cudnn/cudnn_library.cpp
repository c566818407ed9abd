// Defines the functions of cuDNN that this program uses. The first call of any of them loads the library (several
// hundred megabytes). A program without convolutions or attention in bfloat16 never loads it, so it need not be
// installed.
#include <cudnn.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include "model/cuda/cudnn/cudnn_plans.hpp"
#include "model/device.hpp"

namespace lockstep::model::cuda {
namespace {

void* cudnn() {
  static void* const loaded = [] {
    const std::string name = fmt::format("libcudnn.so.{}", CUDNN_MAJOR);
    void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return handle;
    const char* const reason = dlerror();
    throw DeviceError(fmt::format("{} cannot be loaded ({})", name, reason == nullptr ? "unknown reason" : reason));
  }();
  return loaded;
}

template <class Function>
Function* find_in_cudnn(const char* name) {
  void* const found = dlsym(cudnn(), name);
  if (found == nullptr) throw DeviceError(fmt::format("the cuDNN that was loaded has no {}: it is too old", name));
  return reinterpret_cast<Function*>(found);
}

constexpr const char* kFunctions[] = {"cudnnGetVersion",
                                      "cudnnGetErrorString",
                                      "cudnnCreate",
                                      "cudnnDestroy",
                                      "cudnnSetStream",
                                      "cudnnBackendCreateDescriptor",
                                      "cudnnBackendDestroyDescriptor",
                                      "cudnnBackendFinalize",
                                      "cudnnBackendSetAttribute",
                                      "cudnnBackendGetAttribute",
                                      "cudnnBackendExecute"};

}  // namespace

std::string cudnn_obstacle() {
  try {
    for (const char* name : kFunctions) find_in_cudnn<void()>(name);
    return "";
  } catch (const DeviceError& error) {
    return error.what();
  }
}

}  // namespace lockstep::model::cuda

#define LOCKSTEP_LOADED(name)                                                                  \
  ([] {                                                                                        \
    static auto* const function = lockstep::model::cuda::find_in_cudnn<decltype(name)>(#name); \
    return function;                                                                           \
  }())

extern "C" {

size_t cudnnGetVersion() { return LOCKSTEP_LOADED(cudnnGetVersion)(); }
const char* cudnnGetErrorString(cudnnStatus_t status) { return LOCKSTEP_LOADED(cudnnGetErrorString)(status); }
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) { return LOCKSTEP_LOADED(cudnnCreate)(handle); }
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { return LOCKSTEP_LOADED(cudnnDestroy)(handle); }
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return LOCKSTEP_LOADED(cudnnSetStream)(handle, stream);
}
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
  return LOCKSTEP_LOADED(cudnnBackendCreateDescriptor)(type, descriptor);
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return LOCKSTEP_LOADED(cudnnBackendDestroyDescriptor)(descriptor);
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  return LOCKSTEP_LOADED(cudnnBackendFinalize)(descriptor);
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* elements) {
  return LOCKSTEP_LOADED(cudnnBackendSetAttribute)(descriptor, name, type, count, elements);
}
cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted, int64_t* count,
                                       void* elements) {
  return LOCKSTEP_LOADED(cudnnBackendGetAttribute)(descriptor, name, type, wanted, count, elements);
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  return LOCKSTEP_LOADED(cudnnBackendExecute)(handle, plan, pack);
}

}  // extern "C"
