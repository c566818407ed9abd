// Defines the functions of cuBLASLt that this program uses. The first call of any of them loads the library (half a
// gigabyte). A program that computes on the CPU never loads it, so it need not be installed.
#include <cublasLt.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include "model/device.hpp"

namespace lockstep::model::cuda {
namespace {

void* library() {
  static void* const loaded = [] {
    const std::string name = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
    void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return handle;
    const char* const reason = dlerror();
    throw DeviceError(
        fmt::format("{} cannot be loaded ({}): install the CUDA toolkit's libraries, put their folder into "
                    "LD_LIBRARY_PATH, or use --device cpu",
                    name, reason == nullptr ? "unknown reason" : reason));
  }();
  return loaded;
}

template <class Function>
Function* find(const char* name) {
  void* const found = dlsym(library(), name);
  if (found == nullptr) throw DeviceError(fmt::format("the cuBLASLt that was loaded has no {}: it is too old", name));
  return reinterpret_cast<Function*>(found);
}

constexpr const char* kFunctions[] = {"cublasLtCreate",
                                      "cublasLtDestroy",
                                      "cublasLtGetStatusString",
                                      "cublasLtGetProperty",
                                      "cublasLtMatmul",
                                      "cublasLtMatmulAlgoGetHeuristic",
                                      "cublasLtMatmulDescCreate",
                                      "cublasLtMatmulDescDestroy",
                                      "cublasLtMatmulDescSetAttribute",
                                      "cublasLtMatmulPreferenceCreate",
                                      "cublasLtMatmulPreferenceDestroy",
                                      "cublasLtMatmulPreferenceSetAttribute",
                                      "cublasLtMatrixLayoutCreate",
                                      "cublasLtMatrixLayoutSetAttribute",
                                      "cublasLtMatrixLayoutDestroy"};

}  // namespace
}  // namespace lockstep::model::cuda

namespace lockstep::model {

std::string gpu_library_error() {
  try {
    for (const char* name : cuda::kFunctions) cuda::find<void()>(name);
    return "";
  } catch (const DeviceError& error) {
    return error.what();
  }
}

}  // namespace lockstep::model

#define LOCKSTEP_LOADED(name)                                                         \
  ([] {                                                                               \
    static auto* const function = lockstep::model::cuda::find<decltype(name)>(#name); \
    return function;                                                                  \
  }())

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { return LOCKSTEP_LOADED(cublasLtCreate)(handle); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return LOCKSTEP_LOADED(cublasLtDestroy)(handle); }
const char* cublasLtGetStatusString(cublasStatus_t status) { return LOCKSTEP_LOADED(cublasLtGetStatusString)(status); }
cublasStatus_t cublasLtGetProperty(libraryPropertyType type, int* value) {
  return LOCKSTEP_LOADED(cublasLtGetProperty)(type, value);
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  return LOCKSTEP_LOADED(cublasLtMatmul)(handle, operation, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d,
                                         d_layout, algorithm, workspace, workspace_bytes, stream);
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* returned) {
  return LOCKSTEP_LOADED(cublasLtMatmulAlgoGetHeuristic)(handle, operation, a, b, c, d, preference, wanted, results,
                                                         returned);
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  return LOCKSTEP_LOADED(cublasLtMatmulDescCreate)(operation, compute, scale);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  return LOCKSTEP_LOADED(cublasLtMatmulDescDestroy)(operation);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  return LOCKSTEP_LOADED(cublasLtMatmulDescSetAttribute)(operation, attribute, value, bytes);
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return LOCKSTEP_LOADED(cublasLtMatmulPreferenceCreate)(preference);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return LOCKSTEP_LOADED(cublasLtMatmulPreferenceDestroy)(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t bytes) {
  return LOCKSTEP_LOADED(cublasLtMatmulPreferenceSetAttribute)(preference, attribute, value, bytes);
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t leading_dimension) {
  return LOCKSTEP_LOADED(cublasLtMatrixLayoutCreate)(layout, type, rows, columns, leading_dimension);
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                size_t bytes) {
  return LOCKSTEP_LOADED(cublasLtMatrixLayoutSetAttribute)(layout, attribute, value, bytes);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return LOCKSTEP_LOADED(cublasLtMatrixLayoutDestroy)(layout);
}

}  // extern "C"
