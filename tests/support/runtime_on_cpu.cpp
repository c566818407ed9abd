// The part of CUDA's runtime that model/cuda uses, on a host: device memory is host memory, what is enqueued is done at
// once or, while a stream is recorded, when its graph is launched. With support/cuda_on_cpu.cpp, which runs the
// kernels, the whole CUDA backend computes without a GPU; cuBLASLt knows no algorithm here, so that products are those
// of plain_matmul.hpp.
//
// What it does not know: time. Streams are never at different places, so a missing event is not found.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "support/cuda_on_cpu.hpp"

namespace {

using Work = std::vector<std::function<void()>>;
using Clock = std::chrono::steady_clock;

Work* recording = nullptr;

cudaError_t enqueue(std::function<void()> work) {
  if (recording != nullptr) {
    recording->push_back(std::move(work));
  } else {
    work();
  }
  return cudaSuccess;
}

/// A graph and what can be launched of it; both are the same here.
Work* work_of(void* graph) { return static_cast<Work*>(graph); }
Clock::time_point* time_of(cudaEvent_t event) { return reinterpret_cast<Clock::time_point*>(event); }
/// What a call may not do while work is recorded.
cudaError_t unless_recording() { return recording == nullptr ? cudaSuccess : cudaErrorStreamCaptureUnsupported; }

cudaError_t allocate(void** block, std::size_t bytes) {
  if (recording != nullptr) return cudaErrorStreamCaptureUnsupported;
  *block = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (*block == nullptr) return cudaErrorMemoryAllocation;
  std::memset(*block, 0xff, bytes);  // nobody relies on zeros
  return cudaSuccess;
}

}  // namespace

namespace lockstep::model {

std::string gpu_library_error() { return ""; }

}  // namespace lockstep::model

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "a GPU on the CPU");
  properties->major = 9;
  properties->multiProcessorCount = 4;
  properties->totalGlobalMem = std::size_t{8} << 30;
  return cudaSuccess;
}
const char* cudaGetErrorName(cudaError_t) { return "an error"; }
const char* cudaGetErrorString(cudaError_t) { return "of a GPU that is none"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return unless_recording(); }

cudaError_t cudaMalloc(void** block, std::size_t bytes) { return allocate(block, bytes); }
cudaError_t cudaHostAlloc(void** block, std::size_t bytes, unsigned) { return allocate(block, bytes); }
cudaError_t cudaFree(void* block) { return std::free(block), cudaSuccess; }
cudaError_t cudaFreeHost(void* block) { return std::free(block), cudaSuccess; }
cudaError_t cudaMemGetInfo(std::size_t* available, std::size_t* total) {
  return *available = *total = std::size_t{8} << 30, cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t) {
  return enqueue([=] { std::memcpy(to, from, bytes); });
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t) {
  return enqueue([=] { std::memset(to, value, bytes); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return *stream = reinterpret_cast<cudaStream_t>(new char), cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return delete reinterpret_cast<char*>(stream), cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return unless_recording(); }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return unless_recording(); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return *event = reinterpret_cast<cudaEvent_t>(new Clock::time_point), cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete time_of(event), cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  return *time_of(event) = Clock::now(), unless_recording();
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return unless_recording(); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(*time_of(end) - *time_of(begin)).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  if (recording != nullptr) return cudaErrorIllegalState;
  recording = new Work;
  lockstep::test::record_grids(recording);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = recording == nullptr ? cudaStreamCaptureStatusNone : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  *graph = reinterpret_cast<cudaGraph_t>(recording);
  recording = nullptr;
  lockstep::test::record_grids(nullptr);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  return *executable = reinterpret_cast<cudaGraphExec_t>(new Work(*work_of(graph))), cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return unless_recording(); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t) {
  for (const auto& each : *work_of(executable)) each();
  return unless_recording();
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete work_of(graph), cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) { return delete work_of(executable), cudaSuccess; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { return *handle = nullptr, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
const char* cublasLtGetStatusString(cublasStatus_t) { return "no cuBLASLt"; }
cublasStatus_t cublasLtGetProperty(libraryPropertyType, int* value) { return *value = 0, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void*, cublasLtMatrixLayout_t,
                              const void*, cublasLtMatrixLayout_t, const void*, const void*, cublasLtMatrixLayout_t,
                              void*, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t*, void*, std::size_t,
                              cudaStream_t) {
  return CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t*, int*) {
  return CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t, cudaDataType_t) {
  return *made = nullptr, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void*,
                                              std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  return *made = nullptr, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType, std::uint64_t, std::uint64_t,
                                          std::int64_t) {
  return *made = nullptr, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t) { return CUBLAS_STATUS_SUCCESS; }

}  // extern "C"
