// A CUDA driver for tests without a GPU, as far as cuDNN needs it to compile the kernels of a plan and to load them: a
// library called libcuda.so.1. Nothing can run: there is no device, and every call except those that load code returns
// that error.
namespace {
constexpr int kSuccess = 0, kNoDevice = 100;
}

extern "C" {

int cuLibraryLoadData(void** library, void* code, void*, void*, unsigned, void*, void*, unsigned) {
  return *library = code, kSuccess;
}
int cuLibraryGetKernel(void** kernel, void* library, const char*) { return *kernel = library, kSuccess; }
int cuLibraryUnload(void*) { return kSuccess; }
int cuKernelSetAttribute(int, int, void*, int) { return kSuccess; }
int cuKernelGetAttribute(int* value, int, void*, int) { return *value = 0, kSuccess; }
int cuGetErrorName(int, const char** name) { return *name = "CUDA_ERROR_NO_DEVICE", kSuccess; }
int cuGetErrorString(int, const char** text) { return *text = "a driver that drives nothing", kSuccess; }

#define NO_DEVICE(name) \
  int name() { return kNoDevice; }
NO_DEVICE(cuCtxGetCurrent)
NO_DEVICE(cuCtxGetDevice)
NO_DEVICE(cuCtxGetLimit)
NO_DEVICE(cuCtxPopCurrent)
NO_DEVICE(cuCtxPushCurrent)
NO_DEVICE(cuDeviceGet)
NO_DEVICE(cuDeviceGetAttribute)
NO_DEVICE(cuDeviceGetCount)
NO_DEVICE(cuDevicePrimaryCtxRelease)
NO_DEVICE(cuDevicePrimaryCtxReset)
NO_DEVICE(cuDevicePrimaryCtxRetain)
NO_DEVICE(cuDriverGetVersion)
NO_DEVICE(cuFuncGetAttribute)
NO_DEVICE(cuFuncSetAttribute)
NO_DEVICE(cuInit)
NO_DEVICE(cuLaunchCooperativeKernel)
NO_DEVICE(cuLaunchKernel)
NO_DEVICE(cuLaunchKernelEx)
NO_DEVICE(cuLibraryLoadFromFile)
NO_DEVICE(cuLinkAddData)
NO_DEVICE(cuLinkAddData_v2)
NO_DEVICE(cuLinkAddFile_v2)
NO_DEVICE(cuLinkComplete)
NO_DEVICE(cuLinkCreate)
NO_DEVICE(cuLinkCreate_v2)
NO_DEVICE(cuLinkDestroy)
NO_DEVICE(cuMemcpyDtoH_v2)
NO_DEVICE(cuModuleGetFunction)
NO_DEVICE(cuModuleGetGlobal_v2)
NO_DEVICE(cuModuleLoadData)
NO_DEVICE(cuModuleLoadDataEx)
NO_DEVICE(cuModuleLoadFatBinary)
NO_DEVICE(cuModuleUnload)
NO_DEVICE(cuOccupancyMaxActiveBlocksPerMultiprocessor)
NO_DEVICE(cuOccupancyMaxPotentialClusterSize)
NO_DEVICE(cuStreamGetCtx)
NO_DEVICE(cuStreamSynchronize)
NO_DEVICE(cuTensorMapEncodeTiled)
#undef NO_DEVICE

}  // extern "C"
