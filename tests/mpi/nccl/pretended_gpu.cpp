#include "mpi/nccl/pretended_gpu.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include <cuda_runtime.h>
#include <mpi.h>
#include <nccl.h>

#include "comm/nccl/nccl_bf16.hpp"
#include "comm/nccl/nccl_tree.hpp"

struct CUstream_st;

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void misuse(const char* what) {
  std::fprintf(stderr, "pretended GPU: %s\n", what);
  std::_Exit(99);
}

pretended::Faults the_faults;
int the_aborts = 0;
std::size_t the_times_read = 0;
cudaError_t the_last_error = cudaSuccess;
/// Sums that were started and are not yet complete on all ranks. They end in order.
std::vector<MPI_Request> the_sums;
std::size_t the_sums_done = 0;

/// Number of sums so far that a wait includes.
using Position = std::size_t;

bool sums_are_done(Position position) {
  while (the_sums_done < position) {
    int done = 0;
    if (the_sums[the_sums_done] != MPI_REQUEST_NULL) {
      MPI_Test(&the_sums[the_sums_done], &done, MPI_STATUS_IGNORE);
      if (!done) return false;
    }
    ++the_sums_done;
  }
  return true;
}

cudaError_t answer(cudaError_t error) {
  if (error != cudaSuccess) the_last_error = error;
  return error;
}

/// The calls of NCCL since ncclGroupStart, or a single one.
std::vector<std::function<void()>> the_calls;
/// NCCL's own thread adds them to a graph: the stream must stay untouched until it has.
std::jthread the_recording_thread;
std::atomic<CUstream_st*> the_stream_of_the_thread{nullptr};
/// Number of questions about its state: it is done after three.
std::atomic<int> questions_to_the_thread{0};

/// Sources of scattering, kept until the end: a rank that gives up forgets running work.
std::deque<std::vector<float>> the_copies;
int open_groups = 0;
/// The communicator of the open group's calls.
ncclComm_t in_group = nullptr;
CUstream_st* group_stream = nullptr;

/// The actions of a captured stream when it is replayed.
std::vector<std::function<void()>> the_graph;
bool capture_runs = false;
std::vector<CUstream_st*> the_captured;

}  // namespace

struct CUstream_st {
  bool captured = false, unjoined = false;
  Position position = 0;
};

struct CUevent_st {
  bool timed = false, recorded = false, captured = false;
  CUstream_st* stream = nullptr;
  Position position = 0;
  Clock::time_point time;
};

struct ncclComm {
  int rank = 0, size = 0, polls_left = 0, starts_left = 3;
  MPI_Comm mpi = MPI_COMM_NULL;
  ncclResult_t error = ncclSuccess;
  int sums = 0;
};

namespace {

/// Opened once per process, and then kept.
std::FILE* the_log() {
  static std::FILE* const log = [] {
    const char* const file = std::getenv("NCCL_DEBUG_FILE");
    std::FILE* const opened = file != nullptr ? std::fopen(file, "w") : nullptr;
    if (opened != nullptr) setlinebuf(opened);
    return opened;
  }();
  return log;
}

void warn() {
  if (the_log() == nullptr || the_faults.warning.empty()) return;
  std::fprintf(the_log(), "\nhost:1:2 [0] pretended_net.cc:12 NCCL WARN %s\n", the_faults.warning.c_str());
  std::fprintf(the_log(), "host:1:2 [0] NCCL INFO pretended_init.cc:34 -> 3\n");
}

}  // namespace

namespace pretended {

Faults& faults() { return the_faults; }
void* make_stream() { return new CUstream_st; }
void destroy_stream(void* stream) { delete static_cast<CUstream_st*>(stream); }
int aborts() { return the_aborts; }
std::size_t times_read() { return the_times_read; }
void chatter(std::size_t lines) {
  for (std::size_t i = 0; i < lines && the_log() != nullptr; ++i) {
    std::fprintf(the_log(), "host:1:2 [0] NCCL INFO AllGather: %zu Bytes -> Algo RING proto SIMPLE channel{}\n", i);
  }
}

void begin_capture(void* stream) {
  static_cast<CUstream_st*>(stream)->captured = true;
  capture_runs = true;
  the_graph.clear();
}
void end_capture(void* stream) {
  for (CUstream_st* captured : the_captured) {
    // The forked streams have been joined: none of their work follows the event that the origin waits for.
    if (captured->unjoined) misuse("a stream that was forked into the capture was not joined");
    captured->captured = false;
  }
  the_captured.clear();
  static_cast<CUstream_st*>(stream)->captured = false;
  capture_runs = false;
}
void replay(void* stream) {
  for (const auto& work : the_graph) {
    work();
    while (!sums_are_done(the_sums.size())) continue;  // the next one may read its result
  }
  static_cast<CUstream_st*>(stream)->position = the_sums.size();
}

}  // namespace pretended

// CUDA ----------------------------------------------------------------------------------------------------------------

extern "C" {

cudaError_t cudaSetDevice(int device) { return answer(device < 8 ? cudaSuccess : cudaErrorInvalidDevice); }
cudaError_t cudaGetLastError() { return std::exchange(the_last_error, cudaSuccess); }
const char* cudaGetErrorString(cudaError_t) { return "a pretended error"; }
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorIllegalAddress ? "cudaErrorIllegalAddress" : "cudaErrorOther";
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0, *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  if (flags != cudaStreamNonBlocking || priority != -5) misuse("not the stream that was expected");
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new CUevent_st{.timed = (flags & cudaEventDisableTiming) == 0, .time = {}};
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  if (stream == the_stream_of_the_thread) misuse("an event in a stream that NCCL's thread still records to");
  const auto record = [event] {
    event->recorded = true, event->captured = false, event->position = the_sums.size(), event->time = Clock::now();
  };
  if (flags == cudaEventRecordExternal) {
    if (!stream->captured) misuse("an external event outside a capture");
    the_graph.push_back(record);
    return cudaSuccess;
  }
  if (event->timed && stream->captured) misuse("a timing event becomes part of the graph's inside");
  record();
  event->position = stream->position;
  event->captured = stream->captured;
  event->stream = stream;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (stream == the_stream_of_the_thread) misuse("a wait in a stream that NCCL's thread still records to");
  if (stream->captured && !event->captured) return answer(cudaErrorStreamCaptureIsolation);
  if (event->captured) {
    if (!stream->captured) the_captured.push_back(stream);
    stream->captured = true;
    event->stream->unjoined = false;
  }
  stream->position = std::max(stream->position, event->position);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = stream->captured ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (capture_runs) return answer(cudaErrorStreamCaptureUnsupported);
  if (the_faults.device_fails) return answer(cudaErrorIllegalAddress);
  if (the_faults.device_stands_still) return answer(cudaErrorNotReady);
  return sums_are_done(event->position) ? cudaSuccess : answer(cudaErrorNotReady);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t second) {
  ++the_times_read;
  if (!first->timed || !second->timed || !first->recorded || !second->recorded) {
    return answer(cudaErrorInvalidResourceHandle);
  }
  *milliseconds = std::chrono::duration<float, std::milli>(second->time - first->time).count();
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  *memory = std::malloc(bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  if (!sums_are_done(the_sums.size())) misuse("cudaFree waits for a sum that never ends");
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  if (!sums_are_done(stream->position)) misuse("a copy with pageable memory waits for a sum");
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}

// NCCL ----------------------------------------------------------------------------------------------------------------

ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t) { return "pretended NCCL error"; }
const char* ncclGetLastError(ncclComm_t) { return "with details"; }
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 7, sizeof(*id));
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (id.internal[100] != 7) misuse("not the id that was made");
  if (config->blocking != 0 || config->minCTAs != config->maxCTAs) misuse("not the configuration that was expected");
  *communicator = new ncclComm{.rank = rank, .size = size, .polls_left = 5};
  if (the_faults.init_fails) (*communicator)->error = ncclSystemError;
  // The sums must not meet other users' MPI messages.
  MPI_Comm_dup(MPI_COMM_WORLD, &(*communicator)->mpi);
  if (std::FILE* log = the_log(); log != nullptr) {
    if (rank == 0) {
      std::fprintf(log, "host:1:2 [0] NCCL INFO Channel 00/04 :");
      for (int i = 0; i < size; ++i) std::fprintf(log, " %d", i);
      std::fprintf(log, "\n");
    }
    std::fprintf(log, "host:1:2 [0] NCCL INFO 4 coll channels, 0 collnet channels\n");
    std::fprintf(log, "host:1:2 [0] NCCL INFO Channel 00/0 : %d[0] -> %d[0] via %s\n", rank, (rank + 1) % size,
                 rank == 1 ? "NET/IB/0/GDRDMA" : "P2P/CUMEM");
  }
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* state) {
  *state = ncclSuccess;
  ++questions_to_the_thread;
  if (the_stream_of_the_thread.load() != nullptr) {
    *state = ncclInProgress;
    return ncclSuccess;
  }
  if (communicator->polls_left > 0 && --communicator->polls_left > 0) {
    *state = ncclInProgress;
  } else if (communicator->error != ncclSuccess) {
    *state = communicator->error;
  } else if (the_faults.asynchronous_error) {
    *state = ncclRemoteError;
  }
  if (*state != ncclSuccess && *state != ncclInProgress) warn();
  return ncclSuccess;
}
}  // extern "C"

namespace {

float widened(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
std::uint16_t rounded(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// Performs the calls, or lets NCCL's thread record them, which takes a while.
ncclResult_t launch() {
  const auto calls = std::exchange(the_calls, {});
  CUstream_st* const stream = group_stream;
  std::exchange(in_group, nullptr)->polls_left = 3;
  if (!stream->captured) {
    for (const auto& call : calls) call();
    stream->position = the_sums.size();
    return ncclInProgress;
  }
  questions_to_the_thread = 0;
  the_stream_of_the_thread = stream;
  the_recording_thread = std::jthread([calls, stream](const std::stop_token& stop) {
    while (questions_to_the_thread < 3 && !stop.stop_requested()) std::this_thread::yield();
    the_graph.insert(the_graph.end(), calls.begin(), calls.end());
    stream->unjoined = true;
    the_stream_of_the_thread = nullptr;
  });
  return ncclInProgress;
}

/// Starts the MPI call `begin` (MPI_Request*), or records it.
template <class Begin>
ncclResult_t enqueue(ncclComm_t communicator, cudaStream_t stream, const Begin& begin) {
  if (communicator->polls_left > 0 || the_stream_of_the_thread.load() != nullptr)
    misuse("a call before the one before has settled");
  const auto run = [=] {
    MPI_Request request = MPI_REQUEST_NULL;
    if (the_faults.sums_stand_still) {
      static char never;
      warn();
      MPI_Irecv(&never, 1, MPI_CHAR, communicator->rank, 77, communicator->mpi, &request);
    } else {
      begin(&request);
    }
    the_sums.push_back(request);
  };
  the_calls.emplace_back(run);
  in_group = communicator, group_stream = stream;
  return open_groups > 0 ? ncclSuccess : launch();
}

void require_type(ncclDataType_t type, ncclDataType_t expected) {
  if (type != expected) misuse("halves of sums are of float32, copies of bytes");
}

/// Sums of bfloat16, element by element as float32.
void add_bf16(void* from, void* to, int* count, MPI_Datatype*) {
  const auto* const terms = static_cast<const std::uint16_t*>(from);
  auto* const sums = static_cast<std::uint16_t*>(to);
  for (int i = 0; i < *count; ++i) sums[i] = rounded(widened(sums[i]) + widened(terms[i]));
}

/// Done when it is enqueued, or recorded.
int enqueue_kernel(void* stream, const std::function<void()>& kernel) {
  auto* const on = static_cast<CUstream_st*>(stream);
  if (on == the_stream_of_the_thread) misuse("a kernel in a stream that NCCL's thread still records to");
  if (on->captured) {
    the_graph.push_back(kernel);
    on->unjoined = true;
    return cudaSuccess;
  }
  while (!sums_are_done(on->position)) continue;
  kernel();
  return cudaSuccess;
}

}  // namespace

extern "C" {

ncclResult_t ncclGroupStart() {
  ++open_groups;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (open_groups-- != 1) misuse("a group that is not open, or two");
  return in_group == nullptr ? ncclSuccess : launch();
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream) {
  require_type(type, ncclFloat32);
  const auto* const all = static_cast<const float*>(from);
  if (operation != ncclSum || to != all + static_cast<std::size_t>(communicator->rank) * count) {
    misuse("not the scattered sum in place that was expected");
  }
  return enqueue(communicator, stream, [=](MPI_Request* request) {
    const auto& copy = the_copies.emplace_back(all, all + count * static_cast<std::size_t>(communicator->size));
    MPI_Ireduce_scatter_block(copy.data(), to, static_cast<int>(count), MPI_FLOAT, MPI_SUM, communicator->mpi, request);
  });
}
ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                        int root, ncclComm_t communicator, cudaStream_t stream) {
  require_type(type, ncclFloat32);
  if (from != to || operation != ncclSum) misuse("not the sum that was expected");
  return enqueue(communicator, stream, [=](MPI_Request* request) {
    const bool receives = communicator->rank == root;
    MPI_Ireduce(receives ? MPI_IN_PLACE : from, receives ? to : nullptr, static_cast<int>(count), MPI_FLOAT, MPI_SUM,
                root, communicator->mpi, request);
  });
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t communicator,
                           cudaStream_t stream) {
  require_type(type, ncclUint8);
  if (from != static_cast<std::byte*>(to) + static_cast<std::size_t>(communicator->rank) * count) {
    misuse("not the gathering in place that was expected");
  }
  return enqueue(communicator, stream, [=](MPI_Request* request) {
    MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, to, static_cast<int>(count), MPI_BYTE, communicator->mpi,
                   request);
  });
}
ncclResult_t ncclSend(const void*, std::size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  misuse("messages are not pretended");
}
ncclResult_t ncclRecv(void*, std::size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  misuse("messages are not pretended");
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream) {
  require_type(type, ncclUint8);
  if (from != to) misuse("not the broadcast in place that was expected");
  return enqueue(communicator, stream, [=](MPI_Request* request) {
    MPI_Ibcast(to, static_cast<int>(count), MPI_BYTE, root, communicator->mpi, request);
  });
}
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t communicator, cudaStream_t stream) {
  if (from != to || operation != ncclSum) misuse("not the sum that was expected");
  const bool first = communicator->sums++ == 0;
  const ncclResult_t result = enqueue(communicator, stream, [=](MPI_Request* request) {
    const MPI_Datatype element = type == ncclFloat64 ? MPI_DOUBLE : type == ncclFloat32 ? MPI_FLOAT : MPI_UINT16_T;
    static const MPI_Op bf16_sum = [] {
      MPI_Op operation_of_mpi = MPI_OP_NULL;
      MPI_Op_create(add_bf16, 1, &operation_of_mpi);
      return operation_of_mpi;
    }();
    if (first && the_faults.first_sum_wrong) *static_cast<double*>(to) += 1;
    MPI_Iallreduce(MPI_IN_PLACE, to, static_cast<int>(count), element, type == ncclBfloat16 ? bf16_sum : MPI_SUM,
                   communicator->mpi, request);
  });
  if (communicator->rank == 0 && the_log() != nullptr) {
    std::fprintf(the_log(), "host:1:2 [0] NCCL INFO AllReduce: %zu Bytes -> Algo %s proto SIMPLE channel{}\n",
                 count * (type == ncclFloat64 ? 8 : 4), std::getenv("NCCL_ALGO") ? "RING" : "TREE");
  }
  return result;
}
ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  ++the_aborts;
  for (MPI_Request& request : the_sums) {
    if (request != MPI_REQUEST_NULL) request = MPI_REQUEST_NULL;  // forgotten
  }
  delete communicator;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
  communicator->polls_left = 3;
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  if (communicator->polls_left > 0) misuse("the end before the last call has settled");
  delete communicator;
  return ncclSuccess;
}
}

// The kernels --------------------------------------------------------------------------------------------------------

namespace lockstep::comm {

int enqueue_rounding(void* stream, std::uint16_t* to, const float* values, std::size_t count) noexcept {
  return enqueue_kernel(stream, [=] { std::transform(values, values + count, to, rounded); });
}

int enqueue_widening(void* stream, float* values, const std::uint16_t* from, std::size_t count) noexcept {
  return enqueue_kernel(stream, [=] { std::transform(from, from + count, values, widened); });
}

int enqueue_addition(void*, float*, const float*, std::size_t) noexcept { misuse("sums by a tree are not pretended"); }
int enqueue_tree_sum(void*, float*, const SubtreeSums&, std::size_t) noexcept {
  misuse("sums by a tree are not pretended");
}

}  // namespace lockstep::comm
