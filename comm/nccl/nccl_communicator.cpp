#include "comm/nccl/nccl_communicator.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nccl.h>

#include "comm/consensus.hpp"
#include "comm/failure/poll_together.hpp"
#include "comm/host/reduction_memory.hpp"
#include "comm/messages.hpp"
#include "comm/nccl/collective_report.hpp"
#include "comm/nccl/nccl_bf16.hpp"
#include "comm/nccl/nccl_log.hpp"
#include "comm/nccl/nccl_tree.hpp"
#include "comm/session/backoff.hpp"
#include "comm/session/deadline.hpp"
#include "comm/session/peers.hpp"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kCheckInterval{100};
/// A start may take longer than a step: contexts, topology, connections to all peers.
constexpr double kMinStartSeconds = 60;
/// Time after a failure of the device for a peer's death to become visible.
constexpr std::chrono::seconds kTimeToDie{2};
constexpr std::size_t kWarmUpElements = std::size_t{1} << 20, kProbeElements = 8;
/// Largest number of timed joins per step, and in graphs.
constexpr std::size_t kMaxExposedWaits = 1024;
/// Number of first steps that are all timed; afterwards one in this many is. Usual intervals of evaluations or
/// checkpoints are not multiples of it.
constexpr std::int64_t kExposedSteps = 7;

std::string version_text(int code) {
  return code < 10000 ? fmt::format("{}.{}.{}", code / 1000, code / 100 % 10, code % 100)
                      : fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

/// Version of the loaded library.
std::string running_version() {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess ? fmt::format("NCCL {}", version_text(version)) : nccl_build();
}

}  // namespace

std::string nccl_build() { return fmt::format("NCCL {}", version_text(NCCL_VERSION_CODE)); }

// The start -----------------------------------------------------------------------------------------------------------

NcclCommunicator::NcclCommunicator(Communicator& host, const std::string& host_name,
                                   const DeviceCommunicatorOptions& options)
    : Communicator(host.rank(), host.size()),
      host_(host),
      producer_(static_cast<cudaStream_t>(options.stream)),
      label_(device_label(host_name, options)),
      who_(fmt::format("rank {} ({})", host.rank(), label_)),
      wire_(options.wire),
      deadline_(options.deadline_seconds),
      excuse_(options.excuse_seconds),
      ring_(options.ring) {
  all_succeed(host_, [&] {
    own_ = make_urgent_stream();
    for (DeviceEvent* event : {&ready_, &done_}) *event = make_event(cudaEventDisableTiming);
    for (DeviceEvent* event : {&reached_, &before_}) *event = make_event(cudaEventDefault);
    require_success(cudaEventRecord(before_.get(), producer_), label_, "cudaEventRecord");
    if (wire_ == WireFormat::bf16) staging_ = take_device_memory(kDeviceStagingBytes, label_);
    if (options.tree != nullptr) prepare_tree(*options.tree);
  });
  NcclLog log;
  const NcclId id = make_nccl_id(host_);
  bool started = false;
  poll_together(host_, std::max(deadline_, kMinStartSeconds), "NCCL's communicator", [&] {
    return in_words([&] {
      if (!started) nccl_.emplace(id, host_.rank(), host_.size(), options.shared_device ? 1 : options.processors);
      started = true;
      return nccl_->ready();
    });
  });
  warm_up();
  describe_way(log.text(), log.listens());
}

void NcclCommunicator::warm_up() {
  DeviceMemory memory;
  all_succeed(host_, [&] { memory = take_device_memory(kWarmUpElements * sizeof(float), label_); });
  try {
    sum_probe(memory.get());
  } catch (...) {
    nccl_->abort();  // a sum that waits for peers must not run when its memory is freed
    throw;
  }
}

void NcclCommunicator::sum_probe(void* memory) {
  std::array<double, kProbeElements> probe{};
  for (std::size_t i = 0; i < probe.size(); ++i) {
    probe[i] = 1000.0 * (host_.rank() + 1) + static_cast<double>(i);
  }
  enum class Stage { first_sum, first_wait, second_sum, second_wait, end };
  Stage stage = Stage::first_sum;
  const auto mark = [&] { require_success(cudaEventRecord(done_.get(), own_.get()), label_, "cudaEventRecord"); };
  const auto is_past = [&] {
    const cudaError_t state = query_event(done_.get());
    if (state != cudaErrorNotReady) require_success(state, label_, "the first sum");
    return state == cudaSuccess;
  };
  // One stage per poll, and only after NCCL has enqueued the previous one. Nothing here may wait for a peer.
  const auto advance = [&] {
    switch (stage) {
      case Stage::first_sum:
        require_success(cudaMemcpyAsync(memory, probe.data(), sizeof(probe), cudaMemcpyHostToDevice, own_.get()),
                        label_, "cudaMemcpyAsync");
        nccl_->start_sum(memory, probe.size(), NcclHandle::Element::float64, own_.get());
        return Stage::first_wait;
      case Stage::first_wait:
        mark();
        return Stage::second_sum;
      case Stage::second_sum:
        if (!is_past()) return stage;
        require_success(cudaMemcpyAsync(probe.data(), memory, sizeof(probe), cudaMemcpyDeviceToHost, own_.get()),
                        label_, "cudaMemcpyAsync");
        require_success(cudaMemsetAsync(memory, 0, kWarmUpElements * sizeof(float), own_.get()), label_,
                        "cudaMemsetAsync");
        nccl_->start_sum(memory, kWarmUpElements, NcclHandle::Element::float32, own_.get());
        return Stage::second_wait;
      case Stage::second_wait:
        mark();
        return Stage::end;
      case Stage::end:
        break;
    }
    return Stage::end;
  };
  poll_together(host_, std::max(deadline_, kMinStartSeconds), "NCCL's first sum", [&] {
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

bool NcclCommunicator::in_words(const std::function<bool()>& work) const {
  try {
    return work();
  } catch (const NcclError& error) {
    throw std::runtime_error(fmt::format("{}: {}", label_, error.what()));
  }
}

void NcclCommunicator::describe_way(std::string_view log, bool listened) {
  CollectiveReport report = parse_nccl_log(log);
  std::set<std::string> transports;
  for (const std::string& text : all_gather_text(host_, fmt::format("{}", fmt::join(report.transports, "\n")))) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) transports.insert(line);
  }
  report.transports.assign(transports.begin(), transports.end());
  // Only rank 0's log has rings and algorithms.
  const std::string own = listened ? describe(report, ring_)
                                   : "NCCL_DEBUG or NCCL_DEBUG_FILE is set: NCCL's own log says how it communicates";
  description_ = fmt::format("{}, {}", running_version(), all_gather_text(host_, host_.rank() == 0 ? own : "").front());
}

// Sums ----------------------------------------------------------------------------------------------------------------

void NcclCommunicator::do_all_reduce(std::span<float> data) {
  if (wire_ == WireFormat::bf16) return all_reduce_as_bf16(data);
  start(data.size(), [&] { nccl_->start_sum(data.data(), data.size(), NcclHandle::Element::float32, own_.get()); });
}

void NcclCommunicator::do_all_reduce(std::span<double> data) {
  start(data.size(), [&] { nccl_->start_sum(data.data(), data.size(), NcclHandle::Element::float64, own_.get()); });
}

void NcclCommunicator::all_reduce_as_bf16(std::span<float> data) {
  auto* const staging = static_cast<std::uint16_t*>(staging_.get());
  constexpr std::size_t kMax = kDeviceStagingBytes / sizeof(std::uint16_t);
  for (std::size_t done = 0; done < data.size(); done += kMax) {
    const std::span<float> part = data.subspan(done, std::min(kMax, data.size() - done));
    start(part.size(), [&] {
      check(enqueue_rounding(own_.get(), staging, part.data(), part.size()), "rounding to bfloat16");
      nccl_->start_sum(staging, part.size(), NcclHandle::Element::bfloat16, own_.get());
    });
    check(enqueue_widening(own_.get(), part.data(), staging, part.size()), "widening of bfloat16");
  }
}

void NcclCommunicator::prepare_tree(const SummationTree& tree) {
  tree_ = &tree;
  first_subtrees_.push_back(0);
  for (int rank = 0; rank < size(); ++rank) first_subtrees_.push_back(first_subtrees_.back() + tree.subtrees(rank));
  pieces_ = take_device_memory(ordered_staging_bytes(tree), label_);
  const std::span<const SummationTree::Step> steps = tree.steps_over_subtrees();
  steps_ = take_device_memory(steps.size_bytes(), label_);
  // The source memory is not pinned, so it has been read when the call returns.
  require_success(cudaMemcpyAsync(steps_.get(), steps.data(), steps.size_bytes(), cudaMemcpyHostToDevice, own_.get()),
                  label_, "cudaMemcpyAsync");
}

void NcclCommunicator::do_all_reduce(const TreeTerms& terms) {
  if (terms.tree != tree_) throw std::invalid_argument("NCCL's ranks were not made for this tree");
  // The largest piece is the last rank's: its share, plus up to 16 elements for each rank.
  const std::size_t ranks = static_cast<std::size_t>(size()), subtrees = tree_->steps_over_subtrees().size();
  const std::size_t piece = ordered_staging_bytes(*tree_) / sizeof(float) / subtrees;
  const std::size_t most = (piece - 16 * ranks) / 16 * 16 * ranks;
  for (std::size_t done = 0; done < terms.data.size(); done += most) {
    sum_part_by_tree(terms, done, terms.data.subspan(done, std::min(most, terms.data.size() - done)));
  }
}

void NcclCommunicator::sum_part_by_tree(const TreeTerms& terms, std::size_t at, std::span<float> part) {
  auto* const pieces = static_cast<float*>(pieces_.get());
  const Slice own = own_slice(part.size(), rank());
  const auto piece_of = [&](int subtree) { return pieces + static_cast<std::size_t>(subtree) * own.count; };
  const int own_subtrees = tree_->subtrees(rank()), first = first_subtrees_[static_cast<std::size_t>(rank())];
  messages_.clear();
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const Slice theirs = own_slice(part.size(), peer);
    for (int i = 0; i < own_subtrees && theirs.count > 0; ++i) {
      messages_.push_back({.direction = NcclHandle::Message::Direction::send,
                           .data = terms.subtree(i, own_subtrees).data() + at + theirs.offset,
                           .count = theirs.count,
                           .peer = peer});
    }
    const auto index = static_cast<std::size_t>(peer);
    for (int i = first_subtrees_[index]; i < first_subtrees_[index + 1] && own.count > 0; ++i) {
      messages_.push_back({.direction = NcclHandle::Message::Direction::receive,
                           .data = piece_of(i),
                           .count = own.count,
                           .peer = peer});
    }
  }
  start(part.size(), [&] {
    for (int i = 0; i < own_subtrees; ++i) {
      check(cudaMemcpyAsync(piece_of(first + i), terms.subtree(i, own_subtrees).data() + at + own.offset,
                            own.count * sizeof(float), cudaMemcpyDeviceToDevice, own_.get()),
            "cudaMemcpyAsync");
    }
    nccl_->start_messages(messages_, own_.get());
  });
  const SubtreeSums subtrees{.first = pieces,
                             .stride = own.count,
                             .steps = static_cast<const SummationTree::Step*>(steps_.get()),
                             .count = first_subtrees_.back()};
  check(enqueue_tree_sum(own_.get(), part.data() + own.offset, subtrees, own.count), "a sum in the order of a tree");
  do_all_gather(std::as_writable_bytes(part), sizeof(float));
}

void NcclCommunicator::do_copy_here(std::span<const float> from, std::span<float> to) {
  require_usable();
  check(cudaMemcpyAsync(to.data(), from.data(), to.size_bytes(), cudaMemcpyDeviceToDevice, producer_),
        "cudaMemcpyAsync");
}

void NcclCommunicator::do_add_here(std::span<const float> from, std::span<float> to) {
  require_usable();
  check(enqueue_addition(producer_, to.data(), from.data(), to.size()), "an addition");
}

void NcclCommunicator::do_reduce_scatter(std::span<float> data) {
  const std::size_t share = own_slice(data.size(), 0).count;
  const std::size_t rest = data.size() - share * static_cast<std::size_t>(size());
  start(data.size(), [&] { nccl_->start_scatter_sum(data.data(), share, rest, own_.get()); });
}

void NcclCommunicator::do_all_gather(std::span<std::byte> data, std::size_t element_bytes) {
  const std::size_t share = own_bytes(data.size(), element_bytes, 0).count;
  const std::size_t rest = data.size() - share * static_cast<std::size_t>(size());
  start(data.size(), [&] { nccl_->start_gather(data.data(), share, rest, own_.get()); });
}

void NcclCommunicator::do_broadcast(std::span<std::byte> data, int root) {
  start(data.size(), [&] { nccl_->start_broadcast(data.data(), data.size(), root, own_.get()); });
}

void NcclCommunicator::do_barrier() {
  host_.barrier();
  host_.wait();
}

std::unique_ptr<std::pmr::memory_resource> NcclCommunicator::do_reduction_memory(std::size_t bytes, MemoryUse) {
  const std::size_t size = rounded_up(std::max<std::size_t>(bytes, 1));
  DeviceMemory memory;
  all_succeed(host_, [&] { memory = take_device_memory(size, label_); });
  return as_resource(std::move(memory), size);
}

template <class Call>
void NcclCommunicator::start(std::size_t count, const Call& call) {
  require_usable();
  if (count == 0) return;
  check(cudaEventRecord(ready_.get(), producer_), "cudaEventRecord");
  check(cudaStreamWaitEvent(own_.get(), ready_.get()), "cudaStreamWaitEvent");
  unjoined_ = true;
  try {
    call();
  } catch (const NcclError& error) {
    fail("a sum", -1, error.what(), Suspect::peers);
  }
  settle();
}

void NcclCommunicator::settle() {
  wait_until("NCCL's start of a sum", -1, [] { return true; });
}

void NcclCommunicator::do_join() {
  require_usable();
  if (!unjoined_) return;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(producer_, &status), "cudaStreamIsCapturing");
  const bool capturing = status != cudaStreamCaptureStatusNone;
  const unsigned flags = capturing ? cudaEventRecordExternal : cudaEventRecordDefault;
  ExposedWait* const exposed_wait = next_exposed_wait(capturing);
  if (exposed_wait) check(cudaEventRecordWithFlags(exposed_wait->begin.get(), producer_, flags), "cudaEventRecord");
  check(cudaEventRecord(done_.get(), own_.get()), "cudaEventRecord");
  check(cudaStreamWaitEvent(producer_, done_.get()), "cudaStreamWaitEvent");
  if (exposed_wait) check(cudaEventRecordWithFlags(exposed_wait->end.get(), producer_, flags), "cudaEventRecord");
  unjoined_ = false;
}

// Exposed time --------------------------------------------------------------------------------------------------------

NcclCommunicator::ExposedWait NcclCommunicator::make_exposed_wait() const {
  return {.begin = make_event(cudaEventDefault), .end = make_event(cudaEventDefault)};
}

NcclCommunicator::ExposedWait* NcclCommunicator::next_exposed_wait(bool capturing) {
  std::vector<ExposedWait>& waits = capturing ? recorded_ : immediate_;
  const std::size_t index = capturing ? recorded_.size() : immediate_used_++;
  if (index >= kMaxExposedWaits) return nullptr;
  if (index >= waits.size()) {
    // A capture does not record the creation of an event, and should not forbid it.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    check(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
    waits.push_back(make_exposed_wait());
    check(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
  }
  return &waits[index];
}

double NcclCommunicator::read_exposed_waits() {
  double exposed = 0;
  for (std::size_t i = 0; i < std::min(immediate_used_, immediate_.size()); ++i) {
    exposed += std::max(0.0, seconds_between(immediate_[i].begin, immediate_[i].end).value_or(0));
  }
  for (const ExposedWait& one : recorded_) {
    if (seconds_between(before_, one.begin).value_or(-1) < 0) continue;  // its graph was launched for another step
    exposed += std::max(0.0, seconds_between(one.begin, one.end).value_or(0));
  }
  return exposed;
}

void NcclCommunicator::add_up_exposed_waits(std::int64_t step) {
  if (step < 0) {
    exposed_ += read_exposed_waits();
  } else {
    // The first steps are special: they connect, and are not recorded.
    if (every_step_ || steps_waited_for_ < kExposedSteps || steps_waited_for_ % kExposedSteps == 0) {
      exposed_in_step_ = read_exposed_waits();
    }
    exposed_ += exposed_in_step_;
    ++steps_waited_for_;
  }
  immediate_used_ = 0;
  std::swap(before_, reached_);
}

// Waiting -------------------------------------------------------------------------------------------------------------

void NcclCommunicator::do_wait(const char* what, std::int64_t step) {
  do_end_step();
  do_wait_for_step(what, step);
}

void NcclCommunicator::do_end_step() {
  do_join();
  check(cudaEventRecord(reached_.get(), producer_), "cudaEventRecord");
}

void NcclCommunicator::do_wait_for_step(const char* what, std::int64_t step) {
  wait_until(what, step, [&] {
    const cudaError_t state = query_event(reached_.get());
    if (state != cudaErrorNotReady) check(state, "an operation on the device", what, step);
    return state == cudaSuccess;
  });
  add_up_exposed_waits(step);
  trim_nccl_log();
}

template <class Done>
void NcclCommunicator::wait_until(const char* what, std::int64_t step, Done done) {
  Backoff backoff(kDevicePace);
  auto next_check = Clock::now() + kCheckInterval;
  std::optional<Patience> patience;
  for (;;) {
    try {
      if (nccl_->ready() && done()) return;
    } catch (const NcclError& error) {
      fail(what, step, error.what(), Suspect::peers);
    }
    backoff.pause();
    const auto now = Clock::now();
    if (now < next_check) continue;
    next_check = now + kCheckInterval;
    if (!patience) patience.emplace(deadline_ * 3 / 4, excuse_);
    bool busy = false;
    try {
      busy = host_.check_peers();
    } catch (const PeerError& error) {
      abort();
      throw PeerError(fmt::format("{} waits in {} for sums over NCCL. {}", who_, at_step(what, step), error.what()));
    }
    if (patience->exhausted(busy)) give_up(what, step, patience->waited());
  }
}

double NcclCommunicator::do_set_deadline(double seconds) {
  host_.set_deadline(seconds);
  return std::exchange(deadline_, seconds);
}

void NcclCommunicator::require_usable() const {
  if (aborted_) throw PeerError(fmt::format("{}: NCCL has been aborted after an error", who_));
}

void NcclCommunicator::check(int cuda_error, const char* call, const char* what, std::int64_t step) {
  const auto error = static_cast<cudaError_t>(cuda_error);
  if (error == cudaSuccess) return;
  cudaGetLastError();
  fail(what, step, fmt::format("{} failed: {}{}", call, cuda_text(error), last_nccl_warnings()), Suspect::own_device);
}

void NcclCommunicator::fail(const char* what, std::int64_t step, const std::string& reason, Suspect suspect) {
  abort();
  const std::string here = fmt::format("{} fails in {}: {}.", who_, at_step(what, step), reason);
  // An error from NCCL is often caused by a dead peer, whose process shows it a little later.
  for (const auto end = Clock::now() + kTimeToDie; suspect == Suspect::peers && Clock::now() < end;) {
    try {
      host_.check_peers();
    } catch (const PeerError& error) {
      throw PeerError(fmt::format("{} {}", here, error.what()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  throw PeerError(here + " Ending the job.");
}

void NcclCommunicator::abort() noexcept {
  nccl_->abort();
  aborted_ = true;
}

void NcclCommunicator::give_up(const char* what, std::int64_t step, double waited) {
  abort();
  const std::string here = fmt::format("{} has waited for {} s in {} for sums over NCCL{}.", who_, seconds_text(waited),
                                       at_step(what, step), last_nccl_warnings());
  const double usual = host_.set_deadline(deadline_ / 4);
  std::string report;
  try {
    host_.barrier();
    host_.wait();
    std::vector<std::string> operations;
    for (const RankText& said : gather_distinct(host_, at_step(what, step))) operations.push_back(with_ranks(said));
    report = fmt::format(
        "All ranks are alive, but their sums do not get done ({}): a device or a link between devices stands still, or "
        "the ranks sum different things. `nvidia-smi` and the kernel logs of the hosts (Xid) may say which. Ending the "
        "job.",
        fmt::join(operations, "; "));
  } catch (const PeerError& error) {
    report = error.what();
  }
  host_.set_deadline(usual);
  throw PeerError(fmt::format("{} Failure report: {}", here, report));
}

}  // namespace lockstep::comm
