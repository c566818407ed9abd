#include "comm/nccl_reduction.hpp"

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nccl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "comm/agreement.hpp"
#include "comm/collective_report.hpp"
#include "comm/nccl_log.hpp"
#include "comm/peers.hpp"
#include "comm/poll_together.hpp"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookInterval{100};
/// A start may take longer than a step is allowed to: contexts, topology, connections to all peers.
constexpr double kLeastStartSeconds = 60;
/// What a device that failed may be given to show up as a dead process.
constexpr std::chrono::seconds kTimeToDie{1};
constexpr std::size_t kWarmUpElements = std::size_t{1} << 20, kProbeElements = 8;
/// So many joins between two wait() are timed; more are not, and so many in graphs.
constexpr std::size_t kMostStandstills = 1024;

std::string cuda_text(cudaError_t error) {
  return fmt::format("{} ({})", cudaGetErrorString(error), cudaGetErrorName(error));
}

/// An error at the start, for all_succeed.
void require(cudaError_t error, const std::string& who, const char* call) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw std::runtime_error(fmt::format("{}: {}: {}", who, call, cuda_text(error)));
}

/// Is the event past? Leaves no trace in cudaGetLastError().
cudaError_t query(cudaEvent_t event) {
  const cudaError_t state = cudaEventQuery(event);
  if (state == cudaErrorNotReady) cudaGetLastError();
  return state;
}

/// One poll without result since `start`: at first at full speed, then lending the core to others, then asleep.
void rest(Clock::time_point start, Clock::time_point now) {
  constexpr std::chrono::microseconds kSpin{50}, kYield{2000}, kSleep{20};
  if (now - start < kSpin) return;
  if (now - start < kYield) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(kSleep);
  }
}

DeviceEvent make_event(unsigned flags) {
  cudaEvent_t event = nullptr;
  const cudaError_t error = cudaEventCreateWithFlags(&event, flags);
  if (error != cudaSuccess) {
    cudaGetLastError();
    throw std::runtime_error(fmt::format("cudaEventCreate: {}", cuda_text(error)));
  }
  return DeviceEvent(event);
}

DeviceStream make_urgent_stream() {
  int least = 0, greatest = 0;
  cudaStream_t stream = nullptr;
  cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
  if (error == cudaSuccess) error = cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest);
  if (error != cudaSuccess) {
    cudaGetLastError();
    throw std::runtime_error(fmt::format("cudaStreamCreate: {}", cuda_text(error)));
  }
  return DeviceStream(stream);
}

/// Seconds between two events that are past; negative when they are in the other order, nothing when one has never been
/// recorded.
std::optional<double> seconds_between(const DeviceEvent& first, const DeviceEvent& second) {
  float milliseconds = 0;
  if (cudaEventElapsedTime(&milliseconds, first.get(), second.get()) != cudaSuccess) {
    cudaGetLastError();
    return std::nullopt;
  }
  return static_cast<double>(milliseconds) / 1000;
}

/// Device memory for the warm-up.
struct FreeDeviceMemory {
  void operator()(void* memory) const noexcept { cudaFree(memory); }
};

std::string version_text(int code) {
  return code < 10000 ? fmt::format("{}.{}.{}", code / 1000, code / 100 % 10, code % 100)
                      : fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

std::string at_step(const char* what, std::int64_t step) {
  return step < 0 ? std::string(what) : fmt::format("step {}: {}", step, what);
}

void check_options(const DeviceReductionOptions& options) {
  if (options.stream == nullptr) throw std::invalid_argument("device sums need the producer's stream");
  if (options.device < 0) throw std::invalid_argument(fmt::format("a device of index {}", options.device));
  if (!(options.deadline_seconds > 0)) {
    throw std::invalid_argument(fmt::format("a deadline of {} s: it must be positive", options.deadline_seconds));
  }
  if (options.processors <= 0) {
    throw std::invalid_argument(fmt::format("{} processors for a sum: it needs one", options.processors));
  }
}

}  // namespace

void DestroyEvent::operator()(CUevent_st* event) const noexcept { cudaEventDestroy(event); }
void DestroyStream::operator()(CUstream_st* stream) const noexcept { cudaStreamDestroy(stream); }

std::string nccl_build() { return fmt::format("NCCL {}", version_text(NCCL_VERSION_CODE)); }

namespace {

/// Of the library that was loaded.
std::string running_version() {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess ? fmt::format("NCCL {}", version_text(version)) : nccl_build();
}

}  // namespace

std::string device_label(const std::string& host, const DeviceReductionOptions& options) {
  return fmt::format("host {}, {}", host,
                     options.device_name.empty() ? fmt::format("GPU {}", options.device) : options.device_name);
}

std::unique_ptr<Reduction> make_device_reduction(MpiSession& session, Communicator& host,
                                                 const DeviceReductionOptions& options) {
  check_options(options);
  const std::string label = device_label(session.host(), options);
  apply_nccl_settings({.ring = options.ring, .shared_device = options.shared_device, .rank = host.rank()});
  all_succeed(host, [&] {
    require(cudaSetDevice(options.device), label, "cudaSetDevice");
    require(cudaFree(nullptr), label, "the start of CUDA on this device");
  });
  if (host.size() > 1) return std::make_unique<NcclReduction>(host, session.host(), options);
  std::unique_ptr<Reduction> alone;
  all_succeed(host, [&] { alone = std::make_unique<SerialDeviceReduction>(session.host(), options); });
  return alone;
}

// A world of one ------------------------------------------------------------------------------------------------------

SerialDeviceReduction::SerialDeviceReduction(const std::string& host, const DeviceReductionOptions& options)
    : producer_(static_cast<cudaStream_t>(options.stream)),
      who_(device_label(host, options)),
      reached_(make_event(cudaEventDisableTiming)) {}

void SerialDeviceReduction::wait(const char* what, std::int64_t step) {
  cudaError_t state = cudaEventRecord(reached_.get(), producer_);
  if (state == cudaSuccess) state = query(reached_.get());
  for (const auto start = Clock::now(); state == cudaErrorNotReady; state = query(reached_.get())) {
    rest(start, Clock::now());
  }
  if (state == cudaSuccess) return;
  cudaGetLastError();
  throw PeerError(fmt::format("{}: the device failed in {}: {}", who_, at_step(what, step), cuda_text(state)));
}

// The start -----------------------------------------------------------------------------------------------------------

NcclReduction::NcclReduction(Communicator& host, const std::string& host_name, const DeviceReductionOptions& options)
    : host_(host),
      producer_(static_cast<cudaStream_t>(options.stream)),
      label_(device_label(host_name, options)),
      who_(fmt::format("rank {} ({})", host.rank(), label_)),
      deadline_(options.deadline_seconds),
      ring_(options.ring) {
  all_succeed(host_, [&] {
    own_ = make_urgent_stream();
    for (DeviceEvent* event : {&ready_, &done_, &reached_}) *event = make_event(cudaEventDisableTiming);
    since_ = make_event(cudaEventDefault);
    require(cudaEventRecord(since_.get(), producer_), label_, "cudaEventRecord");
  });
  NcclLog log;
  const NcclId id = make_nccl_id(host_);
  bool started = false;
  poll_together(host_, std::max(deadline_, kLeastStartSeconds), "NCCL's communicator", [&] {
    return in_words([&] {
      if (!started) nccl_.emplace(id, host_.rank(), host_.size(), options.shared_device ? 1 : options.processors);
      started = true;
      return nccl_->ready();
    });
  });
  warm_up();
  describe_way(log.text(), log.listens());
}

void NcclReduction::warm_up() {
  std::unique_ptr<void, FreeDeviceMemory> memory;
  all_succeed(host_, [&] {
    void* bytes = nullptr;
    require(cudaMalloc(&bytes, kWarmUpElements * sizeof(float)), label_, "cudaMalloc of 4 MiB for the first sum");
    memory.reset(bytes);
  });
  try {
    sum_probe(memory.get());
  } catch (...) {
    nccl_->abort();  // a sum that waits for peers must not run when its memory is freed
    throw;
  }
}

void NcclReduction::sum_probe(void* memory) {
  std::array<double, kProbeElements> probe{};
  for (std::size_t i = 0; i < probe.size(); ++i) {
    probe[i] = 1000.0 * (host_.rank() + 1) + static_cast<double>(i);
  }
  enum class Stage { first_sum, first_wait, second_sum, second_wait, end };
  Stage stage = Stage::first_sum;
  const auto mark = [&] { require(cudaEventRecord(reached_.get(), own_.get()), label_, "cudaEventRecord"); };
  const auto is_past = [&] {
    const cudaError_t state = query(reached_.get());
    if (state != cudaErrorNotReady) require(state, label_, "the first sum");
    return state == cudaSuccess;
  };
  // One stage a poll, and only when NCCL has enqueued what the one before asked for. Nothing here may wait for a peer.
  const auto advance = [&] {
    switch (stage) {
      case Stage::first_sum:
        require(cudaMemcpyAsync(memory, probe.data(), sizeof(probe), cudaMemcpyHostToDevice, own_.get()), label_,
                "cudaMemcpyAsync");
        nccl_->start_sum(memory, probe.size(), NcclCommunicator::Element::float64, own_.get());
        return Stage::first_wait;
      case Stage::first_wait:
        mark();
        return Stage::second_sum;
      case Stage::second_sum:
        if (!is_past()) return stage;
        require(cudaMemcpyAsync(probe.data(), memory, sizeof(probe), cudaMemcpyDeviceToHost, own_.get()), label_,
                "cudaMemcpyAsync");
        require(cudaMemsetAsync(memory, 0, kWarmUpElements * sizeof(float), own_.get()), label_, "cudaMemsetAsync");
        nccl_->start_sum(memory, kWarmUpElements, NcclCommunicator::Element::float32, own_.get());
        return Stage::second_wait;
      case Stage::second_wait:
        mark();
        return Stage::end;
      case Stage::end:
        break;
    }
    return Stage::end;
  };
  poll_together(host_, std::max(deadline_, kLeastStartSeconds), "NCCL's first sum", [&] {
    return in_words([&] {
      if (!nccl_->ready()) return false;
      if (stage == Stage::end) return is_past();
      stage = advance();
      return false;
    });
  });
  const double ranks = host_.size();
  all_succeed(host_, [&] {
    for (std::size_t i = 0; i < probe.size(); ++i) {
      const double expected = 1000 * ranks * (ranks + 1) / 2 + ranks * static_cast<double>(i);
      if (probe[i] == expected) continue;
      throw std::runtime_error(fmt::format(
          "{}: NCCL's first sum is {} instead of {}: a device or a link computes wrongly", label_, probe[i], expected));
    }
  });
}

bool NcclReduction::in_words(const std::function<bool()>& work) const {
  try {
    return work();
  } catch (const NcclError& error) {
    throw std::runtime_error(fmt::format("{}: {}", label_, error.what()));
  }
}

void NcclReduction::describe_way(std::string_view log, bool listened) {
  CollectiveReport report = parse_nccl_log(log);
  std::set<std::string> transports;
  for (const std::string& text : host_.all_gather_text(fmt::format("{}", fmt::join(report.transports, "\n")))) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) transports.insert(line);
  }
  report.transports.assign(transports.begin(), transports.end());
  // Rings and algorithms are in the log of rank 0 alone.
  const std::string own = listened ? describe(report, ring_)
                                   : "NCCL_DEBUG or NCCL_DEBUG_FILE is set: NCCL's own log says how it communicates";
  description_ = fmt::format("{}, {}", running_version(), host_.all_gather_text(host_.rank() == 0 ? own : "").front());
}

// Sums ----------------------------------------------------------------------------------------------------------------

void NcclReduction::sum(std::span<float> data, const Wire& wire) {
  if (wire.bf16) throw std::invalid_argument("sums on GPUs travel as bfloat16 where they are given as such");
  start(data.data(), data.size(), NcclCommunicator::Element::float32);
}
void NcclReduction::scatter_sum(std::span<float> data, const Wire& wire) {
  if (wire.bf16) throw std::invalid_argument("halves of sums on GPUs travel as float32");
  start(data.size(), [&] { nccl_->start_scatter_sum(data.data(), share_of(data), rest_of(data), own_.get()); });
}
void NcclReduction::gather(std::span<float> data) {
  start(data.size(), [&] { nccl_->start_gather(data.data(), share_of(data), rest_of(data), own_.get()); });
}
std::size_t NcclReduction::share_of(std::span<const float> data) const { return host_.own_slice(data.size(), 0).count; }
std::size_t NcclReduction::rest_of(std::span<const float> data) const {
  return data.size() - share_of(data) * static_cast<std::size_t>(host_.size());
}
void NcclReduction::sum(std::span<double> data) { start(data.data(), data.size(), NcclCommunicator::Element::float64); }
void NcclReduction::sum_bf16(std::span<std::uint16_t> data) {
  start(data.data(), data.size(), NcclCommunicator::Element::bfloat16);
}

void NcclReduction::start(void* data, std::size_t count, NcclCommunicator::Element element) {
  start(count, [&] { nccl_->start_sum(data, count, element, own_.get()); });
}

template <typename Call>
void NcclReduction::start(std::size_t count, const Call& call) {
  require_usable();
  if (count == 0) return;
  check(cudaEventRecord(ready_.get(), producer_), "cudaEventRecord");
  check(cudaStreamWaitEvent(own_.get(), ready_.get()), "cudaStreamWaitEvent");
  unjoined_ = true;
  try {
    call();
  } catch (const NcclError& error) {
    fail("a sum", -1, error.what(), true);
  }
  settle();
}

void NcclReduction::settle() {
  wait_until("NCCL's start of a sum", -1, [] { return true; });
}

void NcclReduction::join() {
  require_usable();
  if (!unjoined_) return;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(producer_, &status), "cudaStreamIsCapturing");
  const bool capturing = status != cudaStreamCaptureStatusNone;
  const unsigned flags = capturing ? cudaEventRecordExternal : cudaEventRecordDefault;
  Standstill* const standstill = next_standstill(capturing);
  if (standstill) check(cudaEventRecordWithFlags(standstill->begin.get(), producer_, flags), "cudaEventRecord");
  check(cudaEventRecord(done_.get(), own_.get()), "cudaEventRecord");
  check(cudaStreamWaitEvent(producer_, done_.get()), "cudaStreamWaitEvent");
  if (standstill) check(cudaEventRecordWithFlags(standstill->end.get(), producer_, flags), "cudaEventRecord");
  unjoined_ = false;
}

// Exposed time --------------------------------------------------------------------------------------------------------

NcclReduction::Standstill NcclReduction::make_standstill() const {
  return {.begin = make_event(cudaEventDefault), .end = make_event(cudaEventDefault)};
}

NcclReduction::Standstill* NcclReduction::next_standstill(bool capturing) {
  std::vector<Standstill>& place = capturing ? recorded_ : immediate_;
  const std::size_t index = capturing ? recorded_.size() : immediate_used_++;
  if (index >= kMostStandstills) return nullptr;
  if (index >= place.size()) {
    // To make an event is none of the things that a capture records, and none that it should forbid.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    check(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
    place.push_back(make_standstill());
    check(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
  }
  return &place[index];
}

void NcclReduction::add_up_standstills() {
  for (std::size_t i = 0; i < std::min(immediate_used_, immediate_.size()); ++i) {
    exposed_ += std::max(0.0, seconds_between(immediate_[i].begin, immediate_[i].end).value_or(0));
  }
  immediate_used_ = 0;
  for (const Standstill& one : recorded_) {
    if (seconds_between(since_, one.begin).value_or(-1) < 0) continue;  // its graph was not launched since
    exposed_ += std::max(0.0, seconds_between(one.begin, one.end).value_or(0));
  }
  check(cudaEventRecord(since_.get(), producer_), "cudaEventRecord");
}

// Waiting -------------------------------------------------------------------------------------------------------------

void NcclReduction::wait(const char* what, std::int64_t step) {
  require_usable();
  check(cudaEventRecord(reached_.get(), producer_), "cudaEventRecord", what, step);
  wait_until(what, step, [&] {
    const cudaError_t state = query(reached_.get());
    if (state != cudaErrorNotReady) check(state, "an operation on the device", what, step);
    return state == cudaSuccess;
  });
  add_up_standstills();
}

template <typename Done>
void NcclReduction::wait_until(const char* what, std::int64_t step, Done done) {
  const auto start = Clock::now();
  auto next_look = start + kLookInterval;
  std::optional<Patience> patience;
  for (;;) {
    try {
      if (nccl_->ready() && done()) return;
    } catch (const NcclError& error) {
      fail(what, step, error.what(), true);
    }
    const auto now = Clock::now();
    rest(start, now);
    if (now < next_look) continue;
    next_look = now + kLookInterval;
    if (!patience) patience.emplace(deadline_ * 3 / 4);
    bool busy = false;
    try {
      busy = host_.look_at_peers();
    } catch (const PeerError& error) {
      abort();
      throw PeerError(fmt::format("{} waits in {} for sums over NCCL. {}", who_, at_step(what, step), error.what()));
    }
    if (patience->exhausted(busy)) give_up(what, step, patience->waited());
  }
}

void NcclReduction::require_usable() const {
  if (aborted_) throw PeerError(fmt::format("{}: NCCL has been aborted after an error", who_));
}

void NcclReduction::check(int cuda_error, const char* call, const char* what, std::int64_t step) {
  const auto error = static_cast<cudaError_t>(cuda_error);
  if (error == cudaSuccess) return;
  cudaGetLastError();
  fail(what, step, fmt::format("{} failed: {}", call, cuda_text(error)), false);
}

void NcclReduction::fail(const char* what, std::int64_t step, const std::string& reason, bool look_for_the_dead) {
  abort();
  const std::string here = fmt::format("{} fails in {}: {}.", who_, at_step(what, step), reason);
  // An error that NCCL reports is often a peer that died: its process shows it, a little later.
  for (const auto end = Clock::now() + kTimeToDie; look_for_the_dead && Clock::now() < end;) {
    try {
      host_.look_at_peers();
    } catch (const PeerError& error) {
      throw PeerError(fmt::format("{} {}", here, error.what()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  throw PeerError(here + " Ending the job.");
}

void NcclReduction::abort() noexcept {
  nccl_->abort();
  aborted_ = true;
}

void NcclReduction::give_up(const char* what, std::int64_t step, double waited) {
  abort();
  const std::string here =
      fmt::format("{} has waited for {} s in {} for sums over NCCL.", who_, seconds_text(waited), at_step(what, step));
  const double usual = host_.set_deadline(deadline_ / 4);
  std::string roll_call;
  try {
    host_.barrier();
    const std::vector<std::string> places = gather_distinct(host_, at_step(what, step));
    roll_call = fmt::format(
        "All ranks are alive, but their sums do not get done ({}): a device or a link between devices stands still, or "
        "the ranks sum different things. `nvidia-smi` and the kernel logs of the hosts (Xid) may say which. Ending the "
        "job.",
        fmt::join(places, "; "));
  } catch (const PeerError& error) {
    roll_call = error.what();
  }
  host_.set_deadline(usual);
  throw PeerError(fmt::format("{} Roll call: {}", here, roll_call));
}

}  // namespace lockstep::comm
