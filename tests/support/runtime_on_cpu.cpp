#include "support/runtime_on_cpu.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "model/cuda/kernels/launch.cuh"
#include "support/cuda_on_cpu.hpp"

namespace {

using lockstep::test::MemoryAccess;
using Clock = std::chrono::steady_clock;
using Address = std::uintptr_t;

// ---- work and its order ----

struct Operation {
  std::function<void()> work;
  /// For work that other threads finish; otherwise, the operation is over when it has run.
  std::function<bool()> is_over = {};
  std::vector<std::shared_ptr<Operation>> next;  ///< operations that wait for this one
  std::size_t awaited = 0;                       ///< operations that are not done yet
  bool done = false;
};
using OperationPtr = std::shared_ptr<Operation>;

/// For each stream, the number of its operations that come before.
class VectorClock {
 public:
  std::uint64_t of(std::size_t stream) const { return stream < ticks_.size() ? ticks_[stream] : 0; }
  void set(std::size_t stream, std::uint64_t tick) {
    if (ticks_.size() <= stream) ticks_.resize(stream + 1);
    ticks_[stream] = tick;
  }
  void merge(const VectorClock& other) {
    for (std::size_t i = 0; i < other.ticks_.size(); ++i) set(i, std::max(of(i), other.ticks_[i]));
  }

 private:
  std::vector<std::uint64_t> ticks_;
};

/// One operation of a capture.
struct Node {
  std::string name;
  std::vector<MemoryAccess> accesses = {};
  std::function<void()> work;
  std::function<bool()> is_over = {};
  CUevent_st* records = nullptr;     ///< the event that the launched graph records
  std::set<std::size_t> after = {};  ///< direct predecessors
  std::vector<bool> ancestors = {};  ///< all predecessors
};
struct Capture {
  std::uint64_t number = 0;
  std::vector<Node> nodes;
  CUstream_st* origin = nullptr;
  std::thread::id thread = std::this_thread::get_id();  ///< calls of other threads do not belong to the capture
  std::set<CUstream_st*> streams;
  bool invalid = false;
};

}  // namespace

struct CUstream_st {
  std::size_t number = 0;
  OperationPtr last = {};
  VectorClock clock = {};
  Capture* capture = nullptr;
  std::set<std::size_t> heads = {};  ///< nodes of the capture that precede the next one
  std::thread::id claimed_by = {};
};
struct CUevent_st {
  bool is_timed = false;
  OperationPtr recorded = {};
  VectorClock clock = {};
  std::shared_ptr<Clock::time_point> time = std::make_shared<Clock::time_point>();
  std::uint64_t capture = 0;  ///< number of the capture that recorded it
  std::set<std::size_t> heads = {};
};
struct CUgraph_st {
  std::vector<Node> nodes;
};
struct CUgraphExec_st {
  std::vector<Node> nodes;
};

namespace {

/// An access that later accesses are compared with.
struct PastAccess {
  Address begin, end;
  bool writes;
  std::size_t stream;
  std::uint64_t tick;
  std::string name;
};
struct Allocation {
  std::size_t bytes;
  bool is_pinned;
  std::vector<PastAccess> past;
};
/// The bytes that a copy from pinned memory must read; kept until the host has waited for the copy.
struct Promise {
  std::size_t stream;
  std::uint64_t tick;
  const std::byte* from;
  std::vector<std::byte> bytes;
};

struct RuntimeState {
  std::recursive_mutex turn;
  int devices = 1;
  std::map<Address, Allocation> allocations;
  std::size_t allocated = 0;
  std::vector<OperationPtr> ready, lasting;  ///< lasting: other threads must still finish them
  std::mt19937_64 random;
  double eagerness = 0.3;
  bool ignores_events = false, tells_faults = false, forbids_waits_for_others = false;
  cudaError_t answer_to_queries = cudaSuccess;
  std::int64_t waits = 0, ignored_wait = -1;
  std::size_t longest_chain = 0, times_read = 0;
  std::set<CUstream_st*> streams;
  std::vector<std::uint64_t> ticks;  ///< per stream: number of its operations
  std::set<std::size_t> free_numbers;
  VectorClock host;  ///< operations that the host has waited for
  std::vector<Promise> promises;
  std::unique_ptr<Capture> capture;
  std::uint64_t captures = 0;
  std::vector<std::string> faults;
  cudaError_t last_error = cudaSuccess;
};
/// Never destroyed, because devices may be closed when the process ends.
RuntimeState& runtime() {
  static RuntimeState& the_one = *new RuntimeState;
  return the_one;
}

/// Serialises the calls of threads.
class Turn {
 private:
  std::scoped_lock<std::recursive_mutex> lock_{runtime().turn};
};

constexpr std::size_t kDeviceBytes = std::size_t{8} << 30;
constexpr std::byte kUnwritten{0xff};  ///< NaN in numbers

cudaError_t noted(cudaError_t error) {
  if (error != cudaSuccess) runtime().last_error = error;
  return error;
}

void report_fault(std::string text) {
  auto& faults = runtime().faults;
  if (std::ranges::find(faults, text) != faults.end()) return;
  if (runtime().tells_faults) std::fprintf(stderr, "found on the stand-ins: %s\n", text.c_str());
  faults.push_back(std::move(text));
}

void finish(Operation& operation) {
  operation.done = true;
  for (auto& next : operation.next) {
    if (--next->awaited == 0) runtime().ready.push_back(std::move(next));
  }
  operation.next.clear();
}

void run_one() {
  auto& ready = runtime().ready;
  std::swap(ready[runtime().random() % ready.size()], ready.back());
  const OperationPtr operation = std::move(ready.back());
  ready.pop_back();
  const std::function<void()> work = std::exchange(operation->work, nullptr);
  try {
    if (work) work();
  } catch (const lockstep::test::KernelFault& fault) {
    report_fault(fault.what());
  }
  if (operation->is_over) {
    runtime().lasting.push_back(operation);
  } else {
    finish(*operation);
  }
}
enum class Progress { none, waits_for_others, made };
/// Runs the next operation, or polls operations that other threads finish.
Progress go_on() {
  const std::size_t finished = std::erase_if(runtime().lasting, [](const OperationPtr& operation) {
    if (!operation->is_over()) return false;
    finish(*operation);
    return true;
  });
  if (!runtime().ready.empty()) return run_one(), Progress::made;
  if (finished > 0) return Progress::made;
  return runtime().lasting.empty() ? Progress::none : Progress::waits_for_others;
}
/// The same for a caller that waits for the result. Returns false if there is nothing to wait for.
bool wait_on() {
  const Progress progress = go_on();
  if (progress == Progress::waits_for_others && runtime().forbids_waits_for_others) {
    report_fault("the host waits without a deadline for work that others must still finish");
    return false;
  }
  return progress != Progress::none;
}
void run_until_done(const OperationPtr& operation) {
  while (operation && !operation->done && wait_on()) continue;
}
void run_all() {
  while (wait_on()) continue;
}

OperationPtr submit(std::function<void()> work, const std::vector<OperationPtr>& after,
                    std::function<bool()> is_over = nullptr) {
  const auto operation =
      std::make_shared<Operation>(Operation{.work = std::move(work), .is_over = std::move(is_over), .next = {}});
  for (const OperationPtr& each : after) {
    if (!each || each->done) continue;
    each->next.push_back(operation);
    ++operation->awaited;
  }
  if (operation->awaited == 0) runtime().ready.push_back(operation);
  return operation;
}

void let_chance_run() {
  std::uniform_real_distribution<double> chance;
  while (!runtime().ready.empty() && chance(runtime().random) < runtime().eagerness) run_one();
}

// ---- memory ----

Address address_of(const void* pointer) { return reinterpret_cast<Address>(pointer); }

/// Returns null for memory that CUDA does not know.
Allocation* allocation_of(const void* pointer, std::size_t bytes = 1) {
  auto after = runtime().allocations.upper_bound(address_of(pointer));
  if (after == runtime().allocations.begin()) return nullptr;
  auto& [begin, allocation] = *std::prev(after);
  return address_of(pointer) + bytes <= begin + allocation.bytes ? &allocation : nullptr;
}
bool is_pinned(const void* pointer) {
  const Allocation* const allocation = allocation_of(pointer);
  return allocation != nullptr && allocation->is_pinned;
}

bool meet(const MemoryAccess& a, const MemoryAccess& b) {
  return (a.writes || b.writes) && address_of(a.begin) < address_of(b.begin) + b.bytes &&
         address_of(b.begin) < address_of(a.begin) + a.bytes;
}

/// Reports accesses that have no order with the stream's next operation, and remembers that operation for later ones.
void remember(const CUstream_st& stream, const std::string& name, const MemoryAccess& access) {
  Allocation* const allocation = access.bytes == 0 ? nullptr : allocation_of(access.begin);
  if (allocation == nullptr) return;
  const Address begin = address_of(access.begin), end = begin + access.bytes;
  std::erase_if(allocation->past, [&](const PastAccess& past) {
    if (past.begin >= end || past.end <= begin) return false;
    const bool is_ordered = past.tick <= stream.clock.of(past.stream);
    if (!is_ordered && (past.writes || access.writes)) {
      report_fault(fmt::format("a missing event: {} {} what {} {} on another stream", name,
                               access.writes ? "writes" : "reads", past.name, past.writes ? "writes" : "reads"));
    }
    return is_ordered && begin <= past.begin && past.end <= end && (access.writes || !past.writes);
  });
  allocation->past.push_back({begin, end, access.writes, stream.number, stream.clock.of(stream.number), name});
}

/// Call when the host knows that these operations are over: the bytes for their copies must still be unchanged.
void host_waited_for(const VectorClock& clock) {
  runtime().host.merge(clock);
  std::erase_if(runtime().promises, [](const Promise& promise) {
    if (promise.tick > runtime().host.of(promise.stream)) return false;
    if (std::memcmp(promise.from, promise.bytes.data(), promise.bytes.size()) != 0) {
      report_fault("a late reuse: the host changed pinned memory before it had waited for the copy from there");
    }
    return true;
  });
}

/// Records the promises for pinned memory when a copy is enqueued, or its graph is launched.
void expect_pinned(const CUstream_st& stream, const std::vector<MemoryAccess>& accesses) {
  for (const MemoryAccess& access : accesses) {
    if (!is_pinned(access.begin) || access.bytes == 0) continue;
    const auto* const begin = static_cast<const std::byte*>(access.begin);
    auto& promises = runtime().promises;
    if (!access.writes) {
      promises.push_back({stream.number, stream.clock.of(stream.number), begin, {begin, begin + access.bytes}});
    } else if (std::ranges::none_of(promises, [&](const Promise& promise) {
                 return meet({promise.from, promise.bytes.size(), false}, access);
               })) {
      std::memset(const_cast<void*>(access.begin), static_cast<int>(kUnwritten), access.bytes);
    }
  }
}

/// Drops promises whose bytes another copy overwrites correctly.
void forget_promises(const void* to, std::size_t bytes) {
  std::erase_if(runtime().promises, [&](const Promise& promise) {
    return meet({promise.from, promise.bytes.size(), false}, {to, bytes, true});
  });
}

// ---- streams ----

/// Reports a call on a stream to which a library's thread must still enqueue earlier calls.
void expect_unclaimed(const CUstream_st& stream, const char* name) {
  if (stream.claimed_by == std::thread::id() || stream.claimed_by == std::this_thread::get_id()) return;
  report_fault(fmt::format("{} is on a stream that a library's thread still enqueues to", name));
}

/// The error of calls that a thread may not make while it captures.
cudaError_t unless_capturing() {
  if (!runtime().capture || runtime().capture->thread != std::this_thread::get_id()) return cudaSuccess;
  runtime().capture->invalid = true;
  return noted(cudaErrorStreamCaptureUnsupported);
}

cudaError_t capture_node(CUstream_st& stream, Node node) {
  Capture& capture = *stream.capture;
  if (capture.invalid) return noted(cudaErrorStreamCaptureInvalidated);
  node.after = stream.heads;
  node.ancestors.resize(capture.nodes.size());
  for (const std::size_t each : node.after) {
    node.ancestors[each] = true;
    const auto& further = capture.nodes[each].ancestors;
    for (std::size_t i = 0; i < further.size(); ++i) node.ancestors[i] = node.ancestors[i] || further[i];
  }
  for (std::size_t i = 0; i < capture.nodes.size(); ++i) {
    if (node.ancestors[i]) continue;
    for (const MemoryAccess& before : capture.nodes[i].accesses) {
      for (const MemoryAccess& now : node.accesses) {
        if (!meet(before, now)) continue;
        report_fault(fmt::format("a missing event: {} {} what {} {} in another branch of the capture", node.name,
                                 now.writes ? "writes" : "reads", capture.nodes[i].name,
                                 before.writes ? "writes" : "reads"));
      }
    }
  }
  stream.heads = {capture.nodes.size()};
  capture.nodes.push_back(std::move(node));
  return cudaSuccess;
}

/// Advances the stream to a new position: after all that it waited for and all that the host has waited for.
void advance(CUstream_st& stream) {
  stream.clock.merge(runtime().host);
  stream.clock.set(stream.number, ++runtime().ticks[stream.number]);
}

cudaError_t enqueue_node(CUstream_st& stream, Node node) {
  if (stream.capture != nullptr) return capture_node(stream, std::move(node));
  advance(stream);
  for (const MemoryAccess& access : node.accesses) remember(stream, node.name, access);
  expect_pinned(stream, node.accesses);
  const bool lasts = node.is_over != nullptr;
  stream.last = submit(std::move(node.work), {stream.last}, std::move(node.is_over));
  if (!lasts) let_chance_run();  // work that other threads finish is enqueued from a separate thread
  return cudaSuccess;
}

void leave_capture(Capture& capture) {
  for (CUstream_st* const stream : capture.streams) {
    stream->capture = nullptr;
    stream->heads.clear();
  }
}

bool is_joined(const Capture& capture) {
  std::set<std::size_t> seen = capture.origin->heads;
  for (const std::size_t head : capture.origin->heads) {
    const auto& ancestors = capture.nodes[head].ancestors;
    for (std::size_t i = 0; i < ancestors.size(); ++i) {
      if (ancestors[i]) seen.insert(i);
    }
  }
  return std::ranges::all_of(capture.streams,
                             [&](const CUstream_st* stream) { return std::ranges::includes(seen, stream->heads); });
}

// ---- kernels ----

/// Enqueues a grid. Pointers in the kernel's arguments to one of our allocations count as its accesses.
cudaError_t enqueue_grid(lockstep::test::LaunchedGrid grid) {
  std::vector<MemoryAccess> accesses;
  for (const auto& argument : grid.arguments) {
    for (std::size_t at = 0; at + sizeof(void*) <= argument.size; at += sizeof(void*)) {
      const void* pointer = nullptr;
      std::memcpy(&pointer, static_cast<const std::byte*>(argument.bytes) + at, sizeof pointer);
      if (allocation_of(pointer) != nullptr) accesses.push_back({pointer, 1, !argument.only_read});
    }
  }
  return lockstep::test::enqueue_on_cpu(grid.stream, grid.kernel, std::move(accesses), std::move(grid.run));
}
[[maybe_unused]] const bool grids_are_sent = (lockstep::test::send_grids(enqueue_grid), true);

cudaError_t allocate_block(void** block, std::size_t bytes, bool pinned) {
  const Turn turn;
  if (const cudaError_t error = unless_capturing(); error != cudaSuccess) return error;
  if (!pinned && runtime().allocated + bytes > kDeviceBytes) return noted(cudaErrorMemoryAllocation);
  *block = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (*block == nullptr) return noted(cudaErrorMemoryAllocation);
  std::memset(*block, static_cast<int>(kUnwritten), bytes);  // new memory is not zero
  runtime().allocations.emplace(address_of(*block), Allocation{bytes, pinned, {}});
  if (!pinned) runtime().allocated += bytes;
  return cudaSuccess;
}

/// Waits for the device, as CUDA does.
cudaError_t release_block(void* block, bool pinned) {
  const Turn turn;
  if (const cudaError_t error = unless_capturing(); error != cudaSuccess) return error;
  if (block == nullptr) return cudaSuccess;
  const auto found = runtime().allocations.find(address_of(block));
  if (found == runtime().allocations.end() || found->second.is_pinned != pinned) return noted(cudaErrorInvalidValue);
  run_all();
  for (const CUstream_st* const stream : runtime().streams) host_waited_for(stream->clock);
  if (!pinned) runtime().allocated -= found->second.bytes;
  runtime().allocations.erase(found);
  std::free(block);
  return cudaSuccess;
}

}  // namespace

namespace lockstep::test {

cudaError_t enqueue_on_cpu(cudaStream_t stream, const char* name, std::vector<MemoryAccess> accesses,
                           std::function<void()> work, std::function<bool()> is_over) {
  const Turn turn;
  if (stream == nullptr) {
    report_fault(fmt::format("{} is on the default stream, which nobody waits for", name));
    return noted(cudaErrorInvalidResourceHandle);
  }
  for (const MemoryAccess& access : accesses) {
    if (allocation_of(access.begin) == nullptr || allocation_of(access.begin, access.bytes) != nullptr) continue;
    report_fault(fmt::format("{} goes {} bytes far from where fewer are left of the memory", name, access.bytes));
    return noted(cudaErrorInvalidValue);
  }
  expect_unclaimed(*stream, name);
  return enqueue_node(
      *stream, {.name = name, .accesses = std::move(accesses), .work = std::move(work), .is_over = std::move(is_over)});
}

void order_streams(std::uint64_t seed) {
  runtime().random.seed(seed);
  runtime().eagerness = std::array{0.0, 0.3, 0.6}[seed % 3];
}

void pretend_devices(int count) { runtime().devices = count; }

void ignore_events(bool ignore) { runtime().ignores_events = ignore; }

std::int64_t ignore_wait(std::int64_t number) {
  runtime().ignored_wait = number;
  return std::exchange(runtime().waits, 0);
}

void answer_queries(cudaError_t error) { runtime().answer_to_queries = error; }

void forbid_waits_for_others() { runtime().forbids_waits_for_others = true; }

void claim_stream(cudaStream_t stream, std::thread::id thread) {
  const Turn turn;
  stream->claimed_by = thread;
}

std::size_t times_read() { return runtime().times_read; }

std::size_t longest_chain() { return runtime().longest_chain; }

void tell_faults() { runtime().tells_faults = true; }

std::vector<std::string> take_stream_faults() { return std::exchange(runtime().faults, {}); }

}  // namespace lockstep::test

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  const Turn turn;
  return *count = runtime().devices, cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int device) {
  const Turn turn;
  return device < runtime().devices ? cudaSuccess : noted(cudaErrorInvalidDevice);
}
cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const Turn turn;
  *properties = {};
  std::strcpy(properties->name, "a GPU on the CPU");
  properties->major = 9;
  properties->multiProcessorCount = 4;
  properties->sharedMemPerBlockOptin = std::size_t{227} << 10;
  properties->totalGlobalMem = kDeviceBytes;
  properties->pciBusID = device;
  properties->uuid.bytes[0] = static_cast<char>(device);
  return cudaSuccess;
}
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureUnjoined:
      return "cudaErrorStreamCaptureUnjoined";
    case cudaErrorStreamCaptureIsolation:
      return "cudaErrorStreamCaptureIsolation";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    default:
      return "an error";
  }
}
const char* cudaGetErrorString(cudaError_t) { return "of a GPU that is none"; }
cudaError_t cudaGetLastError() {
  const Turn turn;
  return std::exchange(runtime().last_error, cudaSuccess);
}
cudaError_t cudaDeviceSynchronize() {
  const Turn turn;
  if (const cudaError_t error = unless_capturing(); error != cudaSuccess) return error;
  run_all();
  for (const CUstream_st* const stream : runtime().streams) host_waited_for(stream->clock);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** block, std::size_t bytes) {
  const Turn turn;
  return allocate_block(block, bytes, false);
}
cudaError_t cudaHostAlloc(void** block, std::size_t bytes, unsigned) {
  const Turn turn;
  return allocate_block(block, bytes, true);
}
cudaError_t cudaFree(void* block) {
  const Turn turn;
  return release_block(block, false);
}
cudaError_t cudaFreeHost(void* block) {
  const Turn turn;
  return release_block(block, true);
}
cudaError_t cudaMemGetInfo(std::size_t* available, std::size_t* total) {
  const Turn turn;
  *total = kDeviceBytes;
  return *available = kDeviceBytes - runtime().allocated, cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const Turn turn;
  const auto is_on_device = [&](const void* side) {
    const Allocation* const allocation = allocation_of(side, bytes);
    return allocation != nullptr && !allocation->is_pinned;
  };
  const bool up = kind == cudaMemcpyHostToDevice, down = kind == cudaMemcpyDeviceToHost;
  if (is_on_device(to) == down || is_on_device(from) == up) return noted(cudaErrorInvalidValue);
  const bool is_pageable = (up && !is_pinned(from)) || (down && !is_pinned(to));
  if (is_pageable && stream->capture != nullptr) return unless_capturing();
  const auto copy = [=](const void* source) {
    if (down) forget_promises(to, bytes);
    std::memcpy(to, source, bytes);
  };
  std::function<void()> work = [=] { copy(from); };
  if (is_pageable && up) {  // copied before the call returns
    const auto* const begin = static_cast<const std::byte*>(from);
    work = [=, taken = std::vector<std::byte>(begin, begin + bytes)] { copy(taken.data()); };
  }
  const cudaError_t error =
      lockstep::test::enqueue_on_cpu(stream, "a copy", {{from, bytes, false}, {to, bytes, true}}, std::move(work));
  if (error == cudaSuccess && is_pageable && down)
    return cudaStreamSynchronize(stream);  // returns when the data have arrived
  return error;
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  const Turn turn;
  const bool is_valid = kind == cudaMemcpyDeviceToDevice && width <= to_pitch && width <= from_pitch && height > 0;
  if (!is_valid) return noted(cudaErrorInvalidValue);
  const std::size_t written = (height - 1) * to_pitch + width, read = (height - 1) * from_pitch + width;
  if (allocation_of(to, written) == nullptr || allocation_of(from, read) == nullptr)
    return noted(cudaErrorInvalidValue);
  return lockstep::test::enqueue_on_cpu(stream, "a copy of columns", {{from, read, false}, {to, written, true}}, [=] {
    for (std::size_t row = 0; row < height; ++row) {
      std::memcpy(static_cast<std::byte*>(to) + row * to_pitch, static_cast<const std::byte*>(from) + row * from_pitch,
                  width);
    }
  });
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  const Turn turn;
  if (allocation_of(to, bytes) == nullptr) return noted(cudaErrorInvalidValue);
  return lockstep::test::enqueue_on_cpu(stream, "a fill", {{to, bytes, true}}, [=] { std::memset(to, value, bytes); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const Turn turn;
  auto& free_numbers = runtime().free_numbers;
  auto& ticks = runtime().ticks;
  if (free_numbers.empty()) {
    free_numbers.insert(ticks.size());
    ticks.push_back(0);
  }
  *stream = new CUstream_st{.number = *free_numbers.begin()};
  free_numbers.erase(free_numbers.begin());
  runtime().streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  const Turn turn;
  return *least = 0, *greatest = -5, cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  const Turn turn;
  if (flags != cudaStreamNonBlocking || priority != -5)
    report_fault("an urgent stream has a low priority, or may block");
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Turn turn;
  if (stream->capture != nullptr) return unless_capturing();
  run_until_done(stream->last);
  runtime().streams.erase(stream);
  runtime().free_numbers.insert(stream->number);
  return delete stream, cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Turn turn;
  if (const cudaError_t error = unless_capturing(); error != cudaSuccess) return error;
  run_until_done(stream->last);
  host_waited_for(stream->clock);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Turn turn;
  expect_unclaimed(*stream, "a wait");
  if (runtime().ignores_events || runtime().waits++ == runtime().ignored_wait) return cudaSuccess;
  if (runtime().capture && event->capture == runtime().capture->number) {
    stream->capture = runtime().capture.get();
    stream->capture->streams.insert(stream);
    stream->heads.insert(event->heads.begin(), event->heads.end());
    return cudaSuccess;
  }
  if (stream->capture != nullptr) {
    stream->capture->invalid = true;
    return noted(cudaErrorStreamCaptureIsolation);
  }
  advance(*stream);
  stream->clock.merge(event->clock);
  stream->last = submit(nullptr, {stream->last, event->recorded});
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const Turn turn;
  return *event = new CUevent_st{.is_timed = (flags & cudaEventDisableTiming) == 0}, cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Turn turn;
  return delete event, cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  const Turn turn;
  expect_unclaimed(*stream, "an event");
  if (flags == cudaEventRecordExternal) {
    if (stream->capture == nullptr) return noted(cudaErrorIllegalState);
    return capture_node(*stream,
                        {.name = "a time", .work = [time = event->time] { *time = Clock::now(); }, .records = event});
  }
  event->capture = stream->capture == nullptr ? 0 : stream->capture->number;
  event->heads = stream->heads;
  if (stream->capture != nullptr) return cudaSuccess;
  advance(*stream);
  event->clock = stream->clock;
  stream->last = submit([time = event->time] { *time = Clock::now(); }, {stream->last});
  event->recorded = stream->last;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Turn turn;
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Turn turn;
  if (const cudaError_t error = unless_capturing(); error != cudaSuccess) return error;
  if (event->capture != 0) return noted(cudaErrorCapturedEvent);
  if (runtime().answer_to_queries != cudaSuccess) return noted(runtime().answer_to_queries);
  go_on();  // polling lets time pass
  if (event->recorded && !event->recorded->done) return noted(cudaErrorNotReady);
  host_waited_for(event->clock);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Turn turn;
  if (const cudaError_t error = unless_capturing(); error != cudaSuccess) return error;
  if (event->capture != 0) return noted(cudaErrorCapturedEvent);
  if (runtime().ignores_events) return cudaSuccess;
  run_until_done(event->recorded);
  host_waited_for(event->clock);
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const Turn turn;
  ++runtime().times_read;
  for (const CUevent_st* const event : {begin, end}) {
    if (!event->is_timed || !event->recorded || event->capture != 0) return noted(cudaErrorInvalidResourceHandle);
    if (!event->recorded->done) return noted(cudaErrorNotReady);
  }
  *milliseconds = std::chrono::duration<float, std::milli>(*end->time - *begin->time).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const Turn turn;
  if (runtime().capture) return noted(cudaErrorIllegalState);
  runtime().capture = std::make_unique<Capture>(
      Capture{.number = ++runtime().captures, .nodes = {}, .origin = stream, .streams = {stream}});
  stream->capture = runtime().capture.get();
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const Turn turn;
  *status = stream->capture == nullptr ? cudaStreamCaptureStatusNone
            : stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Turn turn;
  *graph = nullptr;
  if (stream->capture == nullptr || stream->capture->origin != stream) return noted(cudaErrorIllegalState);
  const std::unique_ptr<Capture> capture = std::move(runtime().capture);
  const bool joined = is_joined(*capture);
  leave_capture(*capture);
  if (capture->invalid) return noted(cudaErrorStreamCaptureInvalidated);
  if (!joined) return noted(cudaErrorStreamCaptureUnjoined);
  return *graph = new CUgraph_st{std::move(capture->nodes)}, cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  const Turn turn;
  std::vector<std::size_t> length;  // length of the chain that ends with a node
  for (const Node& node : graph->nodes) {
    std::size_t before = 0;
    for (const std::size_t each : node.after) before = std::max(before, length[each]);
    length.push_back(before + 1);
  }
  runtime().longest_chain = length.empty() ? 0 : std::ranges::max(length);
  return *executable = new CUgraphExec_st{graph->nodes}, cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  const Turn turn;
  return unless_capturing();
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const Turn turn;
  if (const cudaError_t error = unless_capturing(); error != cudaSuccess) return error;
  advance(*stream);
  std::vector<OperationPtr> operations{stream->last};
  for (const Node& node : executable->nodes) {
    for (const MemoryAccess& access : node.accesses) remember(*stream, node.name, access);
    expect_pinned(*stream, node.accesses);
    std::vector<OperationPtr> after{stream->last};
    for (const std::size_t each : node.after) after.push_back(operations[each + 1]);
    operations.push_back(submit(node.work, after, node.is_over));
    if (node.records == nullptr) continue;
    node.records->recorded = operations.back();
    node.records->clock = stream->clock;
    node.records->capture = 0;
  }
  stream->last = submit(nullptr, operations);
  let_chance_run();
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const Turn turn;
  return delete graph, cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  const Turn turn;
  return delete executable, cudaSuccess;
}

}  // extern "C"
