/// \file
/// Communication between the memories of GPUs, by NCCL, concurrently with the computation.
///
/// STREAMS. The computation enqueues on the producer's stream. Sums run on a stream of their own, of the highest
/// priority and not ordered with any other. A collective records an event on the producer's stream and makes its own
/// stream wait for it: the sum's input is then written. join() records an event on the own stream and makes the
/// producer's wait for it: later work there sees the sums. In between both streams run.
///
/// NO BLOCKING. The communicator is made with blocking = 0: any call of NCCL returns at once, "in progress", while a
/// thread of NCCL connects, chooses an algorithm and enqueues the kernel. The kernel must be in the stream before
/// join() records its event, and before the next call. A collective therefore polls until the call is no longer in
/// progress: usually tens of microseconds (a thread is started), or seconds if a new algorithm must connect first. In
/// return, a peer that never comes costs a deadline, not a hang.
///
/// CUDA GRAPHS. All of this can be captured from the producer's stream. The first event forks the own stream into the
/// capture, and join() brings it back. NCCL notices at the call that the stream is being captured, and adds its kernel
/// to the graph from its thread. The capture must allow that, so its mode must be thread-local (or relaxed), not
/// global. Polling reads a few words of host memory (ncclCommGetAsyncError), which is legal in a capture. Querying
/// events is not, so only wait() does it, which is not called in a capture. All ranks must record alike. Sums that have
/// run once outside a capture need no new connections inside it (they are allowed, but slow). Callers that launch the
/// graphs should let nodes keep their priorities (cudaGraphInstantiateFlagUseNodePriority); otherwise the sums lose
/// theirs. The graphs must be destroyed before this object, because NCCL's end waits for the last of them.
///
/// REPRODUCIBILITY. With a fixed number of blocks per sum, the size determines algorithm and protocol, and these
/// determine the order of the additions: a run repeats bit for bit on the same machines.
///
/// EXPOSED TIME. Two timing events around the wait of join() on the producer's stream measure its standstill. In a
/// capture they are recorded as external events, so that each replay records them again. A replay ran in a step if its
/// times are after the end of the preceding step. Reading the times costs the host microseconds per pair while the
/// device idles. After the first 7 steps they are therefore read in every 7th step only, and each step between counts
/// as much as the last one read. Work outside of steps (a negative step) is always read.
///
/// BFLOAT16. The own stream rounds the data into a staging buffer of fixed size, sums there, and widens the result
/// back, a part of that size at a time. The stream orders these operations, so one buffer suffices.
///
/// IN THE ORDER OF A TREE. Parts of the data are summed one after another. Each rank owns its own_slice() of a part.
/// Every rank sends each owner that slice of each of its subtrees, all messages in one group. The owner has them in a
/// staging buffer in the order of the tree and adds them in one kernel; then all gather. There is one kernel per part,
/// and the ranks' own additions (add_here) run on the producer's stream: the order of all additions is the tree's.
///
/// FAILURES. wait() polls the producer's event, NCCL's asynchronous error, and every 0.1 s the peers' processes. A
/// failed device, an error of NCCL or a dead peer ends it at once; silence ends it after 3/4 of the deadline. The first
/// action is to abort the communicator, so that the device is free and the peers' kernels fail, too. After silence the
/// ranks report through host memory, within the last quarter of the deadline: the message names the ranks that do not
/// answer.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/device_communicator.hpp"
#include "comm/nccl/device_handles.hpp"
#include "comm/nccl/nccl_handle.hpp"

namespace lockstep::comm {

class NcclCommunicator final : public Communicator {
 public:
  /// Collective. The device is set, and `host` has more than one rank. Throws ConsensusError.
  NcclCommunicator(Communicator& host, const std::string& host_name, const DeviceCommunicatorOptions& options);

  Transport transport() const noexcept override { return Transport::nccl; }
  std::string description() const override { return description_; }
  WireFormat wire_format() const noexcept override { return wire_; }
  double exposed_seconds() const noexcept override { return exposed_; }
  void measure_every_step() noexcept override { every_step_ = true; }
  double busy_seconds() const noexcept override { return -1; }

 private:
  /// Events around one join() on the producer's stream.
  struct ExposedWait {
    DeviceEvent begin, end;
  };

  std::unique_ptr<std::pmr::memory_resource> do_reduction_memory(std::size_t bytes, MemoryUse use) override;
  void do_all_reduce(std::span<float> data) override;
  void do_all_reduce(std::span<double> data) override;
  void do_all_reduce(const TreeTerms& terms) override;
  void do_copy_here(std::span<const float> from, std::span<float> to) override;
  void do_add_here(std::span<const float> from, std::span<float> to) override;
  void do_reduce_scatter(std::span<float> data) override;
  void do_all_gather(std::span<std::byte> data, std::size_t element_bytes) override;
  void do_broadcast(std::span<std::byte> data, int root) override;
  void do_barrier() override;
  void do_join() override;
  void do_wait(const char* what, std::int64_t step) override;
  void do_end_step() override;
  void do_wait_for_step(const char* what, std::int64_t step) override;
  void do_note_activity(const char* what, std::int64_t step) noexcept override { host_.note_activity(what, step); }
  void do_begin_long_operation(const char* what) override { host_.begin_long_operation(what); }
  void do_end_long_operation() noexcept override { host_.end_long_operation(); }
  void do_note_wait(std::string_view text) override { host_.note_wait(text); }
  double do_set_deadline(double seconds) override;
  bool do_check_peers() override { return host_.check_peers(); }

  void all_reduce_as_bf16(std::span<float> data);
  void prepare_tree(const SummationTree& tree);
  /// `at`: offset of the part in the data.
  void sum_part_by_tree(const TreeTerms& terms, std::size_t at, std::span<float> part);
  /// Common code of every collective around its call of NCCL; `count`: all elements.
  template <class Call>
  void start(std::size_t count, const Call& call);
  /// Returns when NCCL has enqueued the last call.
  void settle();
  /// Sums a few numbers and 4 MiB, which connects the ranks, and checks the few numbers.
  void warm_up();
  void sum_probe(void* memory);
  /// Runs `work`; adds this rank's device to NCCL's errors.
  bool in_words(const std::function<bool()>& work) const;
  void describe_way(std::string_view log, bool listened);
  ExposedWait make_exposed_wait() const;
  ExposedWait* next_exposed_wait(bool capturing);
  void add_up_exposed_waits(std::int64_t step);
  double read_exposed_waits();

  /// Polls between two looks at the peers; returns when `done` returns true. Throws PeerError.
  template <class Done>
  void wait_until(const char* what, std::int64_t step, Done done);
  [[noreturn]] void give_up(const char* what, std::int64_t step, double waited);
  enum class Suspect { own_device, peers };  ///< peers: the reason may be a peer's death
  [[noreturn]] void fail(const char* what, std::int64_t step, const std::string& reason, Suspect suspect);
  void abort() noexcept;
  void require_usable() const;
  void check(int cuda_error, const char* call, const char* what = "a sum", std::int64_t step = -1);

  Communicator& host_;
  ::CUstream_st* producer_;
  std::string label_;  ///< the device, for errors at the start, where the collecting code names the rank
  std::string who_;    ///< this rank and its device
  WireFormat wire_;
  double deadline_, excuse_;
  bool ring_;
  bool aborted_ = false;
  bool unjoined_ = false;  ///< true with collectives since the last join()
  bool every_step_ = false;
  double exposed_ = 0;
  double exposed_in_step_ = 0;  ///< seconds of the last step that was read
  std::int64_t steps_waited_for_ = 0;
  std::string description_;
  DeviceStream own_;
  DeviceEvent ready_, done_;
  DeviceEvent reached_, before_;        ///< end of the awaited work on the producer's stream; the preceding end
  std::vector<ExposedWait> immediate_;  ///< outside of graphs; immediate_used_ of them since the preceding end
  std::size_t immediate_used_ = 0;
  std::vector<ExposedWait> recorded_;  ///< waits in graphs
  DeviceMemory staging_;               ///< staging for sums in bfloat16; empty for float32
  DeviceMemory pieces_;                ///< pieces of subtrees; empty without a tree
  DeviceMemory steps_;                 ///< steps of the tree
  const SummationTree* tree_ = nullptr;
  std::vector<int> first_subtrees_;                 ///< first subtree of each rank, in the order of the tree
  std::vector<NcclHandle::Message> messages_ = {};  ///< messages of one part
  std::optional<NcclHandle> nccl_;  ///< last member: after an error it must release the device before memory is freed
};

}  // namespace lockstep::comm
