/// \file
/// Sums over all ranks of memory that lives where the gradients live: on the host, or on each rank's GPU. Enqueued, they
/// run beside the computation and are waited for once per step; what is enqueued is done in that order. Between hosts a
/// thread drives the host's sums (threaded_reduction.hpp); in shared memory, where a sum takes microseconds and no wire
/// works meanwhile, they are done when the call returns.
///
/// Every method is collective: all ranks call it in the same order with the same counts (elements). A device's
/// reductions may be recorded (CUDA stream capture) by whoever owns the stream.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "comm/communicator.hpp"

namespace lockstep::comm {

class Reduction {
 public:
  virtual ~Reduction() = default;
  Reduction(const Reduction&) = delete;
  Reduction& operator=(const Reduction&) = delete;

  /// "serial", "shared memory", "ring", "nccl": for the plan, the bucket rule and the logs.
  virtual std::string_view transport_name() const noexcept = 0;
  /// More about it, for the log: "NCCL 2.28.9, ring 0 -> 1 -> 2 -> 3, 16 channels". May be empty.
  virtual std::string description() const = 0;

  /// data[i] = sum over ranks of data[i], in place, the same bits on every rank. Starts when everything enqueued so far
  /// on the producer's stream is done, and runs beside what is enqueued there next; the data is the reduction's until
  /// join().
  void sum(std::span<float> data) { sum(data, Wire{}); }
  /// `wire` of the host's sums; a device throws std::invalid_argument where it is not the default.
  virtual void sum(std::span<float> data, const Wire& wire) = 0;
  virtual void sum(std::span<double> data) = 0;
  /// The first half of a sum: after join() shard_of(data.size(), own rank, ranks) of data holds the sum, the rest is
  /// unspecified.
  virtual void scatter_sum(std::span<float> data, const Wire& wire) = 0;
  /// The second half: after join() all of data is what each rank has in its shard of it, in full precision.
  virtual void gather(std::span<float> data) = 0;
  /// bfloat16 as bit patterns, rounded at every hop. Devices only; the host throws std::invalid_argument.
  virtual void sum_bf16(std::span<std::uint16_t> data) = 0;
  /// What is enqueued on the producer's stream from here on sees all sums so far.
  virtual void join() = 0;
  /// Waits on the host until the producer's stream has done everything enqueued so far, sums included. `what` is a
  /// string literal. Throws PeerError past the deadline or when a peer's device failed: names rank, host, device and
  /// what was waited for. After a PeerError the reduction has been aborted and takes no more calls.
  virtual void wait(const char* what, std::int64_t step) = 0;

  /// Seconds that computation stood still for sums since construction (exposed communication).
  virtual double exposed_seconds() const noexcept = 0;
  /// Seconds that sums took, hidden by computation or not. Negative: not known (a device's).
  virtual double busy_seconds() const noexcept { return -1; }

 protected:
  Reduction() = default;
};

/// Host memory, through the communicator, at once.
class HostReduction final : public Reduction {
 public:
  using Reduction::sum;
  explicit HostReduction(Communicator& communicator) : communicator_(communicator) {}
  std::string_view transport_name() const noexcept override { return communicator_.transport_name(); }
  std::string description() const override { return {}; }
  void sum(std::span<float> data, const Wire& wire) override { communicator_.all_reduce_sum(data, wire); }
  void sum(std::span<double> data) override { communicator_.all_reduce_sum(data); }
  void scatter_sum(std::span<float> data, const Wire& wire) override { communicator_.reduce_scatter_sum(data, wire); }
  void gather(std::span<float> data) override { communicator_.all_gather(data); }
  void sum_bf16(std::span<std::uint16_t> data) override;
  void join() override {}
  void wait(const char* what, std::int64_t step) override;
  double exposed_seconds() const noexcept override { return busy_seconds(); }
  double busy_seconds() const noexcept override { return communicator_.seconds() - before_; }

 private:
  Communicator& communicator_;
  double before_ = communicator_.seconds();
};

/// The way that suits the communicator: with a thread where it uses the network, else at once. The communicator must
/// outlive it, and nobody else uses it between an enqueued sum and the next join(). `threaded`: for comparisons.
std::unique_ptr<Reduction> make_host_reduction(Communicator& communicator, std::optional<bool> threaded = {});

struct DeviceReductionOptions {
  void* stream = nullptr;        ///< the producer's cudaStream_t
  int device = 0;                ///< its device, as CUDA counts in this process
  std::string device_name;       ///< for messages: "NVIDIA H200 (0000:1b:00.0)"
  double deadline_seconds = 60;  ///< longest wait for one step; > 0
  bool ring = false;             ///< force NCCL's ring algorithm
  bool shared_device = false;    ///< ranks of one host may share a device: make NCCL believe in separate hosts (tests)
  int processors = 16;           ///< most streaming multiprocessors that a sum may take (NCCL's CTAs); > 0
};

/// Collective. NCCL over all ranks of the session, bootstrapped through `host`: the id is made on rank 0 and broadcast.
/// A world of one needs no NCCL. Throws AgreedError on every rank when any rank cannot start it (names rank, host,
/// device and NCCL's words), also when lockstep was built without CUDA.
std::unique_ptr<Reduction> make_device_reduction(MpiSession& session, Communicator& host,
                                                 const DeviceReductionOptions& options);

/// "NCCL 2.28.9" or "": for --version.
std::string nccl_build();

/// What is wrong with the NCCL_* variables that the user has set, as far as we can tell before NCCL does: an interface
/// in NCCL_SOCKET_IFNAME (prefixes, ^, =, commas as NCCL reads them) that this host does not have. Empty: nothing.
std::string nccl_environment_error();

}  // namespace lockstep::comm
