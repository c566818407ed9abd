// NCCL's functions for this program. The first call loads the library: a program that sums on the host starts without
// it, even if it is not installed.
#include <stdexcept>

#include <dlfcn.h>
#include <fmt/format.h>
#include <nccl.h>

namespace lockstep::comm {
namespace {

void* nccl_library() {
  static void* const loaded = [] {
    void* const handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return handle;
    const char* const reason = dlerror();
    throw std::runtime_error(
        fmt::format("libnccl.so.2, which several GPUs need, cannot be loaded ({}): install NCCL, put "
                    "its folder into LD_LIBRARY_PATH, or use --device cpu",
                    reason == nullptr ? "unknown reason" : reason));
  }();
  return loaded;
}

template <class Function>
Function* find_nccl(const char* name) {
  void* const found = dlsym(nccl_library(), name);
  if (found == nullptr)
    throw std::runtime_error(fmt::format("the NCCL that was loaded has no {}: it is too old", name));
  return reinterpret_cast<Function*>(found);
}

}  // namespace
}  // namespace lockstep::comm

#define LOCKSTEP_LOADED(name)                                                       \
  ([] {                                                                             \
    static auto* const function = lockstep::comm::find_nccl<decltype(name)>(#name); \
    return function;                                                                \
  }())

extern "C" {

ncclResult_t ncclGetVersion(int* version) { return LOCKSTEP_LOADED(ncclGetVersion)(version); }
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) { return LOCKSTEP_LOADED(ncclGetUniqueId)(id); }
ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return LOCKSTEP_LOADED(ncclCommInitRankConfig)(communicator, ranks, id, rank, config);
}
ncclResult_t ncclCommFinalize(ncclComm_t communicator) { return LOCKSTEP_LOADED(ncclCommFinalize)(communicator); }
ncclResult_t ncclCommDestroy(ncclComm_t communicator) { return LOCKSTEP_LOADED(ncclCommDestroy)(communicator); }
ncclResult_t ncclCommAbort(ncclComm_t communicator) { return LOCKSTEP_LOADED(ncclCommAbort)(communicator); }
ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* error) {
  return LOCKSTEP_LOADED(ncclCommGetAsyncError)(communicator, error);
}
ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t communicator, cudaStream_t stream) {
  return LOCKSTEP_LOADED(ncclAllReduce)(from, to, count, type, operation, communicator, stream);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                               ncclComm_t communicator, cudaStream_t stream) {
  return LOCKSTEP_LOADED(ncclReduceScatter)(from, to, count, type, operation, communicator, stream);
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t communicator,
                           cudaStream_t stream) {
  return LOCKSTEP_LOADED(ncclAllGather)(from, to, count, type, communicator, stream);
}
ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t operation, int root,
                        ncclComm_t communicator, cudaStream_t stream) {
  return LOCKSTEP_LOADED(ncclReduce)(from, to, count, type, operation, root, communicator, stream);
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream) {
  return LOCKSTEP_LOADED(ncclBroadcast)(from, to, count, type, root, communicator, stream);
}
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return LOCKSTEP_LOADED(ncclSend)(from, count, type, peer, communicator, stream);
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return LOCKSTEP_LOADED(ncclRecv)(to, count, type, peer, communicator, stream);
}
ncclResult_t ncclGroupStart() { return LOCKSTEP_LOADED(ncclGroupStart)(); }
ncclResult_t ncclGroupEnd() { return LOCKSTEP_LOADED(ncclGroupEnd)(); }
const char* ncclGetErrorString(ncclResult_t result) { return LOCKSTEP_LOADED(ncclGetErrorString)(result); }
const char* ncclGetLastError(ncclComm_t communicator) { return LOCKSTEP_LOADED(ncclGetLastError)(communicator); }

}  // extern "C"
