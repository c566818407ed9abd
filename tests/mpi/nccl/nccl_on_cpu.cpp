#include "mpi/nccl/nccl_on_cpu.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <mpi.h>
#include <nccl.h>

#include "comm/nccl/nccl_bf16.hpp"
#include "comm/nccl/nccl_tree.hpp"
#include "support/runtime_on_cpu.hpp"

struct ncclComm {
  int rank = 0, size = 0;
  int settling = 5;  ///< questions until the start, or the end, is complete
  int sums = 0;
  MPI_Comm mpi = MPI_COMM_NULL;
  std::atomic<ncclResult_t> error = ncclSuccess;
  std::atomic<int> questions = 0;
  std::atomic<bool> is_launching = false, is_aborted = false;
  std::jthread launcher = {};
};

namespace {

constexpr int kQuestions = 2;

[[noreturn]] void misuse_of_nccl(const char* what) {
  std::fprintf(stderr, "NCCL on the CPU: %s\n", what);
  std::_Exit(99);
}

lockstep::test::NcclFaults the_faults;
std::atomic<int> the_aborts = 0;

/// Opened once per process, and then kept.
std::FILE* nccl_log() {
  static std::FILE* const log = [] {
    const char* const file = std::getenv("NCCL_DEBUG_FILE");
    std::FILE* const opened = file != nullptr ? std::fopen(file, "w") : nullptr;
    if (opened != nullptr) setlinebuf(opened);
    return opened;
  }();
  return log;
}
void log_info(const std::string& text) {
  if (nccl_log() != nullptr) fmt::print(nccl_log(), "host:1:2 [0] NCCL INFO {}\n", text);
}
void warn() {
  if (nccl_log() == nullptr || the_faults.warning.empty()) return;
  fmt::print(nccl_log(), "\nhost:1:2 [0] net_on_cpu.cc:12 NCCL WARN {}\n", the_faults.warning);
  log_info("init_on_cpu.cc:34 -> 3");
}

using Call = std::function<cudaError_t()>;
/// The calls of the open group, or a single call.
std::vector<Call> calls_to_launch;
ncclComm_t caller = nullptr;
cudaStream_t stream_of_calls = nullptr;
bool group_is_open = false;

/// A message of the open group: a group's messages travel together.
struct Message {
  bool is_sent;
  void* data;
  std::size_t bytes;
  int peer;
};
std::vector<Message> messages_to_launch;

void expect_settled(ncclComm_t communicator) {
  if (communicator->is_launching || communicator->settling > 0)
    misuse_of_nccl("a call before the one before has settled");
}
void call_on(ncclComm_t communicator, cudaStream_t stream) {
  expect_settled(communicator);
  if (caller != nullptr && stream != stream_of_calls) misuse_of_nccl("one group on two streams");
  caller = communicator;
  stream_of_calls = stream;
}

ncclResult_t launch_calls() {
  ncclComm_t const communicator = std::exchange(caller, nullptr);
  if (communicator == nullptr) return ncclSuccess;
  communicator->questions = 0;
  communicator->is_launching = true;
  communicator->launcher = std::jthread([communicator, stream = stream_of_calls,
                                         calls = std::exchange(calls_to_launch, {})](const std::stop_token& stop) {
    while (communicator->questions < kQuestions && !stop.stop_requested()) std::this_thread::yield();
    for (const Call& call : calls) {
      if (call() != cudaSuccess) communicator->error = ncclUnhandledCudaError;
    }
    lockstep::test::claim_stream(stream, {});
    communicator->is_launching = false;
  });
  lockstep::test::claim_stream(stream_of_calls, communicator->launcher.get_id());
  return ncclInProgress;
}

/// `begin` (communicator, MPI_Request*) hands the collective to MPI when its turn has come; it reads and writes `bytes`
/// bytes from `data` on.
template <class Begin>
ncclResult_t enqueue_collective(ncclComm_t communicator, cudaStream_t stream, const char* name, const void* data,
                                std::size_t bytes, const Begin& begin) {
  call_on(communicator, stream);
  const auto request = std::make_shared<MPI_Request>(MPI_REQUEST_NULL);
  calls_to_launch.emplace_back([=] {
    return lockstep::test::enqueue_on_cpu(
        stream, name, {{data, bytes, true}},
        [=] {
          if (communicator->is_aborted) return;
          if (the_faults.sums_stand_still) return warn();
          begin(communicator, request.get());
        },
        [=, kept = begin] {  // keeps its source until it is over
          static_cast<void>(kept);
          int over = 0;
          if (communicator->is_aborted) return true;
          if (the_faults.sums_stand_still) return false;
          MPI_Test(request.get(), &over, MPI_STATUS_IGNORE);
          return over != 0;
        });
  });
  return group_is_open ? ncclSuccess : launch_calls();
}

/// All messages of a group are one operation, which is over when all have arrived.
void enqueue_messages() {
  if (messages_to_launch.empty()) return;
  const auto messages = std::make_shared<const std::vector<Message>>(std::exchange(messages_to_launch, {}));
  const auto requests = std::make_shared<std::vector<MPI_Request>>(messages->size(), MPI_REQUEST_NULL);
  std::vector<lockstep::test::MemoryAccess> accesses;
  for (const Message& each : *messages) accesses.push_back({each.data, each.bytes, !each.is_sent});
  calls_to_launch.emplace_back([=, communicator = caller, stream = stream_of_calls] {
    return lockstep::test::enqueue_on_cpu(
        stream, "NCCL's messages", accesses,
        [=] {
          if (communicator->is_aborted) return;
          for (std::size_t i = 0; i < messages->size(); ++i) {
            const auto& [is_sent, data, bytes, peer] = (*messages)[i];
            const int count = static_cast<int>(bytes);
            is_sent ? MPI_Isend(data, count, MPI_BYTE, peer, 0, communicator->mpi, &(*requests)[i])
                    : MPI_Irecv(data, count, MPI_BYTE, peer, 0, communicator->mpi, &(*requests)[i]);
          }
        },
        [=] {
          int over = 0;
          if (communicator->is_aborted) return true;
          MPI_Testall(static_cast<int>(requests->size()), requests->data(), &over, MPI_STATUSES_IGNORE);
          return over != 0;
        });
  });
}

ncclResult_t add_message(ncclComm_t communicator, cudaStream_t stream, const Message& message) {
  if (!group_is_open) misuse_of_nccl("a message outside of a group: its peer's may wait for this one");
  call_on(communicator, stream);
  messages_to_launch.push_back(message);
  return ncclSuccess;
}

float widened_bits(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
std::uint16_t rounded_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void add_rounded(void* from, void* to, int* count, MPI_Datatype*) {
  const auto* const terms = static_cast<const std::uint16_t*>(from);
  auto* const sums = static_cast<std::uint16_t*>(to);
  for (int i = 0; i < *count; ++i) sums[i] = rounded_bits(widened_bits(sums[i]) + widened_bits(terms[i]));
}
MPI_Op sum_of(ncclDataType_t type) {
  static const MPI_Op of_bf16 = [] {
    MPI_Op made = MPI_OP_NULL;
    MPI_Op_create(add_rounded, 1, &made);
    return made;
  }();
  return type == ncclBfloat16 ? of_bf16 : MPI_SUM;
}
MPI_Datatype mpi_type_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat32:
      return MPI_FLOAT;
    case ncclFloat64:
      return MPI_DOUBLE;
    case ncclBfloat16:
      return MPI_UINT16_T;
    case ncclUint8:
      return MPI_BYTE;
    default:
      misuse_of_nccl("a type that is not known here");
  }
}
std::size_t bytes_of_type(ncclDataType_t type) {
  return type == ncclFloat64 ? 8 : type == ncclFloat32 ? 4 : type == ncclBfloat16 ? 2 : 1;
}
template <class Count>
int as_int(Count count) {
  return static_cast<int>(count);
}

void expect_type(ncclDataType_t type, ncclDataType_t expected) {
  if (type != expected) misuse_of_nccl("halves of sums are of float32, copies of bytes");
}

}  // namespace

namespace lockstep::test {

NcclFaults& nccl_faults() { return the_faults; }
int nccl_aborts() { return the_aborts; }
void chatter(std::size_t lines) {
  for (std::size_t i = 0; i < lines; ++i) {
    log_info(fmt::format("AllGather: {} Bytes -> Algo RING proto SIMPLE channel{{}}", i));
  }
}

}  // namespace lockstep::test

extern "C" {

ncclResult_t ncclGetVersion(int* version) { return *version = 22809, ncclSuccess; }
const char* ncclGetErrorString(ncclResult_t) { return "an error of NCCL on the CPU"; }
const char* ncclGetLastError(ncclComm_t) { return "with details"; }
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) { return std::memset(id, 7, sizeof *id), ncclSuccess; }

ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (id.internal[100] != 7 || config->blocking != 0 || config->minCTAs != config->maxCTAs)
    misuse_of_nccl("not the start that was expected");
  *made = new ncclComm{.rank = rank, .size = size};
  if (the_faults.init_fails) (*made)->error = ncclSystemError;
  MPI_Comm_dup(MPI_COMM_WORLD, &(*made)->mpi);  // collectives must not meet other users' messages
  if (rank == 0) {
    std::string ring;
    for (int i = 0; i < size; ++i) ring += fmt::format(" {}", i);
    log_info("Channel 00/04 :" + ring);
  }
  log_info("4 coll channels, 0 collnet channels");
  log_info(fmt::format("Channel 00/0 : {}[0] -> {}[0] via {}", rank, (rank + 1) % size,
                       rank == 1 ? "NET/IB/0/GDRDMA" : "P2P/CUMEM"));
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* state) {
  ++communicator->questions;
  if (communicator->is_launching || (communicator->settling > 0 && --communicator->settling > 0)) {
    *state = ncclInProgress;
    return ncclSuccess;
  }
  *state = communicator->error;
  if (*state == ncclSuccess && the_faults.asynchronous_error) *state = ncclRemoteError;
  if (*state != ncclSuccess) warn();
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
  expect_settled(communicator);
  communicator->settling = 3;
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  expect_settled(communicator);
  return delete communicator, ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t communicator) {  // not freed: the enqueued work still asks it
  ++the_aborts;
  communicator->is_aborted = true;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  if (std::exchange(group_is_open, true)) misuse_of_nccl("a group in a group");
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (!std::exchange(group_is_open, false)) misuse_of_nccl("the end of a group that is not open");
  enqueue_messages();
  return launch_calls();
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t communicator, cudaStream_t stream) {
  if (from != to || operation != ncclSum) misuse_of_nccl("not a sum in place");
  const bool is_first = communicator->sums++ == 0;
  if (communicator->rank == 0) {
    log_info(fmt::format("AllReduce: {} Bytes -> Algo {} proto SIMPLE channel{{}}", count * bytes_of_type(type),
                         std::getenv("NCCL_ALGO") != nullptr ? "RING" : "TREE"));
  }
  return enqueue_collective(
      communicator, stream, "NCCL's sum", to, count * bytes_of_type(type), [=](ncclComm_t here, MPI_Request* request) {
        if (is_first && the_faults.first_sum_wrong) *static_cast<double*>(to) += 1;
        MPI_Iallreduce(MPI_IN_PLACE, to, as_int(count), mpi_type_of(type), sum_of(type), here->mpi, request);
      });
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream) {
  expect_type(type, ncclFloat32);
  const std::size_t all = count * static_cast<std::size_t>(communicator->size), bytes = all * bytes_of_type(type);
  const auto* const begin = static_cast<const std::byte*>(from);
  if (operation != ncclSum || to != begin + bytes / static_cast<std::size_t>(communicator->size) *
                                                static_cast<std::size_t>(communicator->rank)) {
    misuse_of_nccl("not a scattered sum in place");
  }
  const auto copy = std::make_shared<std::vector<std::byte>>(bytes);
  return enqueue_collective(
      communicator, stream, "NCCL's scattered sum", from, bytes, [=](ncclComm_t here, MPI_Request* request) {
        std::copy_n(begin, bytes, copy->begin());
        MPI_Ireduce_scatter_block(copy->data(), to, as_int(count), mpi_type_of(type), sum_of(type), here->mpi, request);
      });
}
ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                        int root, ncclComm_t communicator, cudaStream_t stream) {
  expect_type(type, ncclFloat32);
  if (from != to || operation != ncclSum) misuse_of_nccl("not a sum in place");
  return enqueue_collective(communicator, stream, "NCCL's sum on one rank", to, count * bytes_of_type(type),
                            [=](ncclComm_t here, MPI_Request* request) {
                              const bool receives = here->rank == root;
                              MPI_Ireduce(receives ? MPI_IN_PLACE : from, receives ? to : nullptr, as_int(count),
                                          mpi_type_of(type), sum_of(type), root, here->mpi, request);
                            });
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t communicator,
                           cudaStream_t stream) {
  expect_type(type, ncclUint8);
  const std::size_t bytes = count * bytes_of_type(type);
  if (from != static_cast<std::byte*>(to) + static_cast<std::size_t>(communicator->rank) * bytes) {
    misuse_of_nccl("not a gathering in place");
  }
  return enqueue_collective(
      communicator, stream, "NCCL's gathering", to, bytes * static_cast<std::size_t>(communicator->size),
      [=](ncclComm_t here, MPI_Request* request) {
        MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, to, as_int(count), mpi_type_of(type), here->mpi, request);
      });
}
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return add_message(communicator, stream, {true, const_cast<void*>(from), count * bytes_of_type(type), peer});
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return add_message(communicator, stream, {false, to, count * bytes_of_type(type), peer});
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream) {
  expect_type(type, ncclUint8);
  if (from != to) misuse_of_nccl("not a broadcast in place");
  return enqueue_collective(communicator, stream, "NCCL's broadcast", to, count * bytes_of_type(type),
                            [=](ncclComm_t here, MPI_Request* request) {
                              MPI_Ibcast(to, as_int(count), mpi_type_of(type), root, here->mpi, request);
                            });
}

}  // extern "C"

namespace lockstep::comm {

int enqueue_rounding(void* stream, std::uint16_t* to, const float* values, std::size_t count) noexcept {
  return test::enqueue_on_cpu(static_cast<cudaStream_t>(stream), "rounding to bfloat16",
                              {{values, count * sizeof *values, false}, {to, count * sizeof *to, true}},
                              [=] { std::transform(values, values + count, to, rounded_bits); });
}

int enqueue_widening(void* stream, float* values, const std::uint16_t* from, std::size_t count) noexcept {
  return test::enqueue_on_cpu(static_cast<cudaStream_t>(stream), "widening of bfloat16",
                              {{from, count * sizeof *from, false}, {values, count * sizeof *values, true}},
                              [=] { std::transform(from, from + count, values, widened_bits); });
}

int enqueue_addition(void* stream, float* to, const float* from, std::size_t count) noexcept {
  return test::enqueue_on_cpu(static_cast<cudaStream_t>(stream), "an addition",
                              {{from, count * sizeof *from, false}, {to, count * sizeof *to, true}},
                              [=] { std::transform(from, from + count, to, to, std::plus()); });
}

int enqueue_tree_sum(void* stream, float* to, const SubtreeSums& subtrees, std::size_t count) noexcept {
  const auto& [first, stride, steps, terms] = subtrees;
  const std::size_t all = static_cast<std::size_t>(terms) * stride;
  return test::enqueue_on_cpu(static_cast<cudaStream_t>(stream), "a sum by a tree",
                              {{first, all * sizeof *first, false},
                               {steps, static_cast<std::size_t>(terms) * sizeof *steps, false},
                               {to, count * sizeof *to, true}},
                              [=] {
                                for (std::size_t i = 0; i < count; ++i) {
                                  std::vector<float> stack;
                                  for (int k = 0; k < subtrees.count; ++k) {
                                    stack.push_back(subtrees.first[static_cast<std::size_t>(k) * subtrees.stride + i]);
                                    for (int more = subtrees.steps[k].additions; more > 0; --more) {
                                      const float right = stack.back();
                                      stack.pop_back();
                                      stack.back() += right;
                                    }
                                  }
                                  to[i] = stack.front();
                                }
                              });
}

}  // namespace lockstep::comm
