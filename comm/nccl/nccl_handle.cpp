#include "comm/nccl/nccl_handle.hpp"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <nccl.h>

#include "comm/consensus.hpp"
#include "comm/nccl/nccl_log.hpp"
#include "comm/session/network_interfaces.hpp"

namespace lockstep::comm {
namespace {

constexpr std::chrono::seconds kTimeToEnd{10}, kTimeToAbort{2};

[[noreturn]] void fail(ncclResult_t result, const char* call, ncclComm_t communicator) {
  std::string details;
  if (const char* last = ncclGetLastError(communicator)) details = last;
  while (!details.empty() && details.back() == '\n') details.pop_back();
  const std::string warnings = last_nccl_warnings();
  if (warnings.find(details) != std::string::npos) details.clear();
  throw NcclError(
      fmt::format("{}: {}{}{}{}", call, ncclGetErrorString(result), details.empty() ? "" : ": ", details, warnings));
}

/// ncclInProgress is not an error: ready() returns the result.
void check(ncclResult_t result, const char* call, ncclComm_t communicator = nullptr) {
  if (result != ncclSuccess && result != ncclInProgress) fail(result, call, communicator);
}

void set_unless_set(const char* name, const std::string& value) { setenv(name, value.c_str(), 0); }

/// Aborts a communicator. NCCL first tells its kernels and threads to quit. Then it waits, and this never ends if the
/// device no longer answers or a graph still holds one of its kernels. The call therefore runs in a thread of its own,
/// so that the caller can continue. In that thread, a stream that the caller is recording is no obstacle either.
void abort_in_time(ncclComm_t communicator) noexcept {
  try {
    auto done = std::make_shared<std::promise<void>>();
    std::future<void> is_done = done->get_future();
    std::thread([communicator, done = std::move(done)] {
      ncclCommAbort(communicator);
      done->set_value();
    }).detach();
    is_done.wait_for(kTimeToAbort);
  } catch (const std::exception&) {  // no thread available: the communicator ends with the process
  }
}

ncclDataType_t type_of(NcclHandle::Element element) {
  switch (element) {
    case NcclHandle::Element::float64:
      return ncclFloat64;
    case NcclHandle::Element::bfloat16:
      return ncclBfloat16;
    case NcclHandle::Element::float32:
      break;
  }
  return ncclFloat32;
}

}  // namespace

NcclId make_nccl_id(Communicator& host) {
  static_assert(sizeof(ncclUniqueId) == sizeof(NcclId));
  NcclId id;
  all_succeed(host, [&] {
    if (host.rank() != 0) return;
    ncclUniqueId made;
    check(ncclGetUniqueId(&made), "ncclGetUniqueId");
    std::memcpy(id.bytes.data(), &made, sizeof(made));
  });
  host.broadcast(id.bytes, 0);
  host.wait();
  return id;
}

void apply_nccl_settings(const NcclSettings& settings) {
  // While a sum is recorded into a graph, NCCL would try to map its memory into the switch or the peers. This fails for
  // memory of cudaMalloc(), and the attempt is a barrier of all ranks of the host: they would wait until the deadline
  // for a rank that has failed and does not record.
  set_unless_set("NCCL_GRAPH_REGISTER", "0");
  // The switches add the terms in their order of arrival.
  if (!nccl_may_use_nvls(settings.nvls)) setenv("NCCL_NVLS_ENABLE", "0", 1);
  if (settings.ring || settings.shared_device) set_unless_set("NCCL_ALGO", "Ring");
  if (!settings.shared_device) return;
  // NCCL refuses two ranks on one device of one host. As separate hosts they use no direct path between devices.
  set_unless_set("NCCL_HOSTID", fmt::format("rank{}", settings.rank));
  set_unless_set("NCCL_NET", "Socket");
  set_unless_set("NCCL_SOCKET_IFNAME", "lo");
  set_unless_set("NCCL_MNNVL_ENABLE", "0");
  set_unless_set("NCCL_PROTO", "Simple");
  set_unless_set("NCCL_RAS_ENABLE", "0");
}

NcclHandle::NcclHandle(const NcclId& id, int rank, int size, int processors) : rank_(rank), last_rank_(size - 1) {
  ncclUniqueId nccl_id;
  std::memcpy(&nccl_id, id.bytes.data(), sizeof(nccl_id));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.minCTAs = processors;
  config.maxCTAs = processors;
  const ncclResult_t result = ncclCommInitRankConfig(&communicator_, size, nccl_id, rank, &config);
  if (result == ncclSuccess || result == ncclInProgress) return;
  ncclComm_t failed = std::exchange(communicator_, nullptr);
  try {
    fail(result, "ncclCommInitRankConfig", nullptr);
  } catch (...) {
    if (failed != nullptr) abort_in_time(failed);
    throw;
  }
}

NcclHandle::~NcclHandle() {
  if (communicator_ == nullptr) return;
  if (std::uncaught_exceptions() > 0 || !end_in_order()) abort();
}

bool NcclHandle::end_in_order() noexcept {
  const auto end = std::chrono::steady_clock::now() + kTimeToEnd;
  const auto wait_until_ready = [&] {
    while (!ready()) {
      if (std::chrono::steady_clock::now() > end) throw NcclError("the end takes too long");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  try {
    wait_until_ready();
    check(ncclCommFinalize(communicator_), "ncclCommFinalize", communicator_);
    wait_until_ready();
    check(ncclCommDestroy(communicator_), "ncclCommDestroy");
    communicator_ = nullptr;
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

bool NcclHandle::ready() {
  if (communicator_ == nullptr) throw NcclError("the communicator has been aborted");
  ncclResult_t state = ncclSuccess;
  check(ncclCommGetAsyncError(communicator_, &state), "ncclCommGetAsyncError", communicator_);
  if (state == ncclInProgress) return false;
  check(state, "NCCL", communicator_);
  return true;
}

void NcclHandle::start_sum(void* data, std::size_t count, Element element, void* stream) {
  if (communicator_ == nullptr) throw NcclError("the communicator has been aborted");
  check(ncclAllReduce(data, data, count, type_of(element), ncclSum, communicator_, static_cast<cudaStream_t>(stream)),
        "ncclAllReduce", communicator_);
}

template <class Shares, class Rest>
void NcclHandle::start_together(const char* what, const Shares& shares, const Rest& rest) {
  if (communicator_ == nullptr) throw NcclError("the communicator has been aborted");
  check(ncclGroupStart(), "ncclGroupStart", communicator_);
  ncclResult_t result = shares();
  if (result == ncclSuccess || result == ncclInProgress) result = rest();
  const ncclResult_t together = ncclGroupEnd();  // always: started calls must not stay open
  check(result, what, communicator_);
  check(together, what, communicator_);
}

void NcclHandle::start_scatter_sum(float* data, std::size_t share, std::size_t rest, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  start_together(
      "ncclReduceScatter",
      [&] {
        float* const own = data + share * static_cast<std::size_t>(rank_);
        return share == 0 ? ncclSuccess : ncclReduceScatter(data, own, share, ncclFloat32, ncclSum, communicator_, on);
      },
      [&] {
        float* const behind = data + share * static_cast<std::size_t>(last_rank_ + 1);
        return rest == 0 ? ncclSuccess
                         : ncclReduce(behind, behind, rest, ncclFloat32, ncclSum, last_rank_, communicator_, on);
      });
}

void NcclHandle::start_gather(std::byte* data, std::size_t share, std::size_t rest, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  start_together(
      "ncclAllGather",
      [&] {
        const std::byte* const own = data + share * static_cast<std::size_t>(rank_);
        return share == 0 ? ncclSuccess : ncclAllGather(own, data, share, ncclUint8, communicator_, on);
      },
      [&] {
        std::byte* const behind = data + share * static_cast<std::size_t>(last_rank_ + 1);
        return rest == 0 ? ncclSuccess : ncclBroadcast(behind, behind, rest, ncclUint8, last_rank_, communicator_, on);
      });
}

void NcclHandle::start_broadcast(std::byte* data, std::size_t count, int root, void* stream) {
  if (communicator_ == nullptr) throw NcclError("the communicator has been aborted");
  check(ncclBroadcast(data, data, count, ncclUint8, root, communicator_, static_cast<cudaStream_t>(stream)),
        "ncclBroadcast", communicator_);
}

void NcclHandle::start_messages(std::span<const Message> messages, void* stream) {
  if (communicator_ == nullptr) throw NcclError("the communicator has been aborted");
  const auto on = static_cast<cudaStream_t>(stream);
  check(ncclGroupStart(), "ncclGroupStart", communicator_);
  ncclResult_t result = ncclSuccess;
  for (const Message& message : messages) {
    const auto& [direction, data, count, peer] = message;
    result = direction == Message::Direction::send ? ncclSend(data, count, ncclFloat32, peer, communicator_, on)
                                                   : ncclRecv(data, count, ncclFloat32, peer, communicator_, on);
    if (result != ncclSuccess && result != ncclInProgress) break;
  }
  const ncclResult_t together = ncclGroupEnd();  // always: started calls must not stay open
  check(result, "ncclSend and ncclRecv", communicator_);
  check(together, "ncclSend and ncclRecv", communicator_);
}

void NcclHandle::abort() noexcept {
  if (communicator_ != nullptr) abort_in_time(std::exchange(communicator_, nullptr));
}

}  // namespace lockstep::comm
