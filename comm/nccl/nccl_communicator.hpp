/// \file
/// Exchange between the memories of GPUs, by NCCL, beside the computation.
///
/// STREAMS. The computation enqueues on the producer's stream; sums run on a stream of their own, of the highest
/// priority and not ordered with any other. A collective records an event on the producer's stream and lets the own
/// stream wait for it: what the sum reads is written. join() records an event on the own stream and lets the producer's
/// wait for it: what comes next there sees the sums. In between both run.
///
/// WITHOUT BLOCKING. The communicator is made with blocking = 0: any call of NCCL returns at once, "in progress", while
/// a thread of NCCL's connects, chooses an algorithm and enqueues the kernel. Before the event of join() is recorded
/// and before the next call the kernel must be in the stream, so a collective polls until the call is no longer in
/// progress: usually tens of microseconds (a thread is started), seconds when a new algorithm must connect first. What
/// this buys: a peer that never comes costs a deadline, not a hang.
///
/// RECORDED (CUDA graphs). All of this may be captured from the producer's stream. The first event forks the own stream
/// into the capture, join() brings it back; NCCL notices at the call that the stream is being captured and adds its
/// kernel to the graph from its thread, which a capture that is thread-local (or relaxed) allows: so the mode must be
/// thread-local, not global. Polling reads a few words of host memory (ncclCommGetAsyncError), which is legal in a
/// capture; querying events is not, hence nothing here does so but wait(), which is not called in one. All ranks record
/// alike. What was once run without being recorded needs no new connections while it is (they are allowed, but slow).
/// Whoever launches the graphs should let nodes keep their priorities (cudaGraphInstantiateFlagUseNodePriority), or the
/// sums lose theirs. The graphs must go before this object: NCCL's end waits for the last of them.
///
/// REPEATABLE. With a fixed number of blocks per sum, algorithm and protocol follow from the size, and the order of the
/// additions from them: a run repeats bit for bit on the same machines.
///
/// EXPOSED TIME. Two timing events around the wait of join() on the producer's stream tell how long it stood still. In
/// a capture they are recorded as external events, so that each replay records them again; whether a replay did in a
/// step is seen by their time being after the end of the step before. To read the times costs the host microseconds for
/// each pair while the device idles, so after the first 7 steps they are read in every 7th step alone, and each step
/// between counts as much as the last that was read. What is no step (a negative one) is always read.
///
/// AS BFLOAT16. The own stream rounds what is to be summed into a staging buffer of fixed size, sums there, and widens
/// the result back, a part of that size at a time: in the order of the stream, so one buffer does for all.
///
/// IN THE ORDER OF A TREE. A part of the data at a time, of which each rank owns its own_slice(): every rank sends each
/// owner that slice of each of its subtrees, all messages in one group. The owner, who has them in a staging buffer in
/// the order of the tree, adds them up in one kernel, and all gather. A kernel per part, and the ranks' own additions
/// (add_here) on the producer's stream: the order of all additions is the tree's.
///
/// WHEN IT FAILS. wait() polls: the producer's event, NCCL's asynchronous error, and every 0.1 s the peers' processes.
/// A device that fails, an error of NCCL and a dead peer end it at once; silence ends it after 3/4 of the deadline.
/// Then the communicator is aborted, first of all, so that the device is free and the peers' kernels fail, too; after
/// silence the ranks report through host memory, within the last quarter of the deadline: who does not answer is
/// named.
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
  /// Collective. The device is set and `host` has more than one rank. Throws AgreedError.
  NcclCommunicator(Communicator& host, const std::string& host_name, const DeviceCommunicatorOptions& options);

  Transport transport() const noexcept override { return Transport::nccl; }
  std::string description() const override { return description_; }
  WireFormat wire_format() const noexcept override { return wire_; }
  double exposed_seconds() const noexcept override { return exposed_; }
  void measure_every_step() noexcept override { every_step_ = true; }
  double busy_seconds() const noexcept override { return -1; }

 private:
  /// Around one join() on the producer's stream.
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
  bool do_look_at_peers() override { return host_.look_at_peers(); }

  void all_reduce_as_bf16(std::span<float> data);
  void prepare_tree(const SummationTree& tree);
  /// `at`: of the part within the data.
  void sum_part_by_tree(const TreeTerms& terms, std::size_t at, std::span<float> part);
  /// What every collective has in common around its call of NCCL, of `count` elements in all.
  template <class Call>
  void start(std::size_t count, const Call& call);
  /// Until NCCL has enqueued what it was asked to.
  void settle();
  /// Sums a little and 4 MiB, which connects the ranks, and checks the little.
  void warm_up();
  void sum_probe(void* memory);
  /// `work`, with this rank's device before what NCCL says when it fails.
  bool in_words(const std::function<bool()>& work) const;
  void describe_way(std::string_view log, bool listened);
  ExposedWait make_exposed_wait() const;
  ExposedWait* next_exposed_wait(bool capturing);
  void add_up_exposed_waits(std::int64_t step);
  double read_exposed_waits();

  /// Polls between two looks at the peers; returns when `done` does. Throws PeerError.
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
  std::string label_;  ///< of the device: errors at the start, where the rank is named by who gathers them
  std::string who_;    ///< this rank and its device
  WireFormat wire_;
  double deadline_, excuse_;
  bool ring_;
  bool aborted_ = false;
  bool unjoined_ = false;  ///< collectives since the last join()
  bool every_step_ = false;
  double exposed_ = 0;
  double exposed_in_step_ = 0;  ///< the last that was read
  std::int64_t steps_waited_for_ = 0;
  std::string description_;
  DeviceStream own_;
  DeviceEvent ready_, done_;
  DeviceEvent reached_, before_;        ///< the end of what is waited for, on the producer's stream; the end before
  std::vector<ExposedWait> immediate_;  ///< the first immediate_used_ since the end before
  std::size_t immediate_used_ = 0;
  std::vector<ExposedWait> recorded_;  ///< in graphs
  DeviceMemory staging_;               ///< sums as bfloat16; nothing where they travel as float32
  DeviceMemory pieces_;                ///< of subtrees; nothing without a tree
  DeviceMemory steps_;                 ///< of the tree
  const SummationTree* tree_ = nullptr;
  std::vector<int> first_subtrees_;                 ///< of each rank, in the order of the tree
  std::vector<NcclHandle::Message> messages_ = {};  ///< of one part
  std::optional<NcclHandle> nccl_;  ///< last: after an error it must let go of the device before memory is freed
};

}  // namespace lockstep::comm
