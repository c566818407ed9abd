#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <cuda_runtime.h>
#include <fmt/format.h>

#include "comm/consensus.hpp"
#include "comm/host/reduction_memory.hpp"
#include "comm/host/serial_communicator.hpp"
#include "comm/nccl/device_handles.hpp"
#include "comm/nccl/nccl_communicator.hpp"
#include "comm/nccl/nccl_log.hpp"
#include "comm/nccl/nccl_tree.hpp"
#include "comm/session/deadline.hpp"

namespace lockstep::comm {
namespace {

/// A world of one: no communication, but a stream to wait for, which may hang.
class SerialDeviceCommunicator final : public SerialCommunicator {
 public:
  SerialDeviceCommunicator(const std::string& host, const DeviceCommunicatorOptions& options);
  double exposed_seconds() const noexcept override { return 0; }
  double busy_seconds() const noexcept override { return -1; }

 private:
  std::unique_ptr<std::pmr::memory_resource> do_reduction_memory(std::size_t bytes, MemoryUse use) override;
  void do_wait(const char* what, std::int64_t step) override;
  void do_end_step() override;
  void do_wait_for_step(const char* what, std::int64_t step) override;
  double do_set_deadline(double seconds) override { return std::exchange(deadline_, seconds); }
  void do_copy_here(std::span<const float> from, std::span<float> to) override;
  void do_add_here(std::span<const float> from, std::span<float> to) override;
  void require_no_error(cudaError_t state, const char* what, std::int64_t step = -1) const;

  ::CUstream_st* producer_;
  std::string who_;
  double deadline_;
  DeviceEvent reached_;  ///< end of a step
};

SerialDeviceCommunicator::SerialDeviceCommunicator(const std::string& host, const DeviceCommunicatorOptions& options)
    : producer_(static_cast<cudaStream_t>(options.stream)),
      who_(device_label(host, options)),
      deadline_(options.deadline_seconds),
      reached_(make_event(cudaEventDisableTiming)) {}

std::unique_ptr<std::pmr::memory_resource> SerialDeviceCommunicator::do_reduction_memory(std::size_t bytes, MemoryUse) {
  const std::size_t size = rounded_up(std::max<std::size_t>(bytes, 1));
  return as_resource(take_device_memory(size, who_), size);
}

void SerialDeviceCommunicator::do_wait(const char* what, std::int64_t step) {
  do_end_step();
  do_wait_for_step(what, step);
}

void SerialDeviceCommunicator::do_end_step() {
  require_no_error(cudaEventRecord(reached_.get(), producer_), "the end of a step");
}

void SerialDeviceCommunicator::do_wait_for_step(const char* what, std::int64_t step) {
  cudaError_t state = query_event(reached_.get());
  Backoff backoff(kDevicePace);
  std::optional<Patience> patience;  // starts with the first sleep: a step that ends soon never reads the clock
  for (; state == cudaErrorNotReady; state = query_event(reached_.get())) {
    if (backoff.stays_awake()) continue;
    std::this_thread::sleep_for(kDevicePace.sleep);
    if (!patience) patience.emplace(deadline_);
    if (!patience->exhausted(false)) continue;
    throw PeerError(
        fmt::format("{} has not ended {} for {:.0f} s: it stands still, or a step takes longer than --deadline. "
                    "`nvidia-smi` and the "
                    "kernel log of the host (Xid) may say which. Ending the job.",
                    who_, at_step(what, step), patience->waited()));
  }
  require_no_error(state, what, step);
}

void SerialDeviceCommunicator::do_copy_here(std::span<const float> from, std::span<float> to) {
  require_no_error(cudaMemcpyAsync(to.data(), from.data(), to.size_bytes(), cudaMemcpyDeviceToDevice, producer_),
                   "a copy of gradients");
}

void SerialDeviceCommunicator::do_add_here(std::span<const float> from, std::span<float> to) {
  require_no_error(static_cast<cudaError_t>(enqueue_addition(producer_, to.data(), from.data(), to.size())),
                   "an addition of gradients");
}

void SerialDeviceCommunicator::require_no_error(cudaError_t state, const char* what, std::int64_t step) const {
  if (state == cudaSuccess) return;
  cudaGetLastError();
  throw PeerError(fmt::format("{}: the device failed in {}: {}", who_, at_step(what, step), cuda_text(state)));
}

void check_options(const DeviceCommunicatorOptions& options) {
  if (options.stream == nullptr) throw std::invalid_argument("device sums need the producer's stream");
  if (options.device < 0) throw std::invalid_argument(fmt::format("a device of index {}", options.device));
  if (!(options.deadline_seconds > 0)) {
    throw std::invalid_argument(fmt::format("a deadline of {} s: it must be positive", options.deadline_seconds));
  }
  if (keeps_errors(options.wire)) throw std::invalid_argument("GPUs keep no errors of rounding");
  if (options.processors <= 0) {
    throw std::invalid_argument(fmt::format("{} processors for a sum: it needs one", options.processors));
  }
}

}  // namespace

std::unique_ptr<Communicator> make_device_communicator(MpiSession& session, Communicator& host,
                                                       const DeviceCommunicatorOptions& options) {
  check_options(options);
  const std::string label = device_label(session.host(), options);
  apply_nccl_settings(
      {.ring = options.ring, .nvls = options.nvls, .shared_device = options.shared_device, .rank = host.rank()});
  all_succeed(host, [&] {
    require_success(cudaSetDevice(options.device), label, "cudaSetDevice");
    require_success(cudaFree(nullptr), label, "the start of CUDA on this device");
  });
  if (host.size() > 1) return std::make_unique<NcclCommunicator>(host, session.host(), options);
  std::unique_ptr<Communicator> alone;
  all_succeed(host, [&] { alone = std::make_unique<SerialDeviceCommunicator>(session.host(), options); });
  return alone;
}

}  // namespace lockstep::comm
