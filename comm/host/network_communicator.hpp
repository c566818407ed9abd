/// \file
/// What the communicators between hosts share: failure detection, the wire format with its rounding errors, and the
/// thread that drives collectives beside the computation.
///
/// WHY A THREAD. Messages advance only while somebody is inside MPI. A nonblocking collective that is started and
/// looked at again after the computation has hardly moved by then; a thread that does nothing else keeps the wire busy.
///
/// ONE AT A TIME. From the first enqueued collective to the end of join() only the thread calls MPI
/// (MPI_THREAD_SERIALIZED). Collectives are done in the order in which they are enqueued, with the same calls as
/// without the thread: the same bits.
///
/// WHAT OVERTAKES. A small sum that the computation cannot go on without (batch statistics) would wait for all buckets
/// that are enqueued. So it does not join them: whoever waits for messages of a bucket, or for ranks of its host, looks
/// after this sum at each poll, which has messages with a tag of their own and the schedule, and thus the bits, of any
/// sum of its size. It needs nothing but that all ranks come to it, wherever their buckets are. Where no bucket is
/// under way the computing thread drives it itself. One thread calls MPI and waits at any time, with one patience: as
/// long as either of the two moves, nobody is called stuck.
///
/// ITS SHARE OF THE CORES. Where the ranks of a kernel have a core for it beside those that compute, the thread polls,
/// yields and sleeps as any wait does. Else it sleeps between its looks at the network while the main thread computes,
/// and polls at full speed while that waits in join() (Urgency).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/failure/failure_detector.hpp"
#include "comm/failure/shared_control.hpp"
#include "comm/failure/urgency.hpp"
#include "comm/host/error_feedback.hpp"
#include "comm/host/reduction_memory.hpp"
#include "comm/host/ring_group.hpp"

namespace lockstep::comm {

class NetworkCommunicator : public Communicator {
 public:
  WireFormat wire_format() const noexcept override { return wire_; }
  bool uses_network() const noexcept override { return true; }
  std::optional<AllReduceLimits> all_reduce_limits() const noexcept override {
    return uses_network() ? std::optional(limits_of(ring_length())) : std::nullopt;
  }
  /// Collective, before any other collective. Sums take the schedules that are fastest here from now on, where any
  /// travel between hosts. Throws PeerError.
  void measure_all_reduce();
  void forget_rounding_errors() noexcept override { feedback_.forget(); }
  double busy_seconds() const noexcept override { return busy_; }
  /// Larger sums do not overtake.
  static constexpr std::size_t kMaxUrgentBytes = std::size_t{128} << 10;
  std::vector<int> dead_peers() const override { return detector_.dead_peers(); }

 protected:
  /// `state` belongs to the session, which outlives this.
  NetworkCommunicator(MpiSession::State& state, PeerTable peers, const CommunicatorOptions& options);

  FailureDetector& detector() noexcept { return detector_; }
  const FailureDetector& detector() const noexcept { return detector_; }
  const Urgency& urgency() const noexcept { return urgency_; }
  /// Of a ring of so many positions, as it was asked for.
  AllReduceLimits limits_of(int positions) const noexcept {
    return limits_.value_or(AllReduceLimits::usual(positions));
  }
  /// Of a sum of so many bytes, what one ring carries.
  virtual std::size_t part_of(std::size_t bytes) const noexcept { return bytes; }
  /// How these data travel.
  Wire wire_of(std::span<const float> data) noexcept;
  /// Derived destructors call it first, for the thread uses the whole object. What is enqueued and not yet begun is
  /// dropped; what is under way is waited for.
  void stop() noexcept;

  void do_note_activity(const char* what, std::int64_t step) noexcept override { detector_.note_activity(what, step); }
  void do_begin_long_operation(const char* what) override;

 private:
  struct Queued {
    Collective operation;
    std::span<std::byte> data = {};
    std::size_t element_bytes = 1;  ///< a sum's tell its type
    int root = 0;
    TreeTerms terms = {};  ///< of a sum by a tree
  };

  /// The collectives themselves, in the thread or at once.
  virtual std::unique_ptr<ReductionMemory> take_memory(std::size_t bytes) = 0;
  virtual void run_all_reduce(std::span<float> data) = 0;
  virtual void run_all_reduce(std::span<double> data) = 0;
  virtual void run_reduce_scatter(std::span<float> data) = 0;
  virtual void run_all_gather(std::span<std::byte> data, std::size_t element_bytes) = 0;
  virtual void run_broadcast(std::span<std::byte> data, int root) = 0;
  virtual void run_barrier() = 0;

  /// A sum of up to kMaxUrgentBytes that overtakes what is enqueued; whether one can, the same on all ranks.
  virtual bool can_overtake() const noexcept { return false; }
  virtual void begin_urgent(std::span<double>) {}
  /// Does what can be done without waiting.
  virtual Progress advance_urgent() { return Progress::done; }
  virtual void abandon_urgent() noexcept {}

  std::unique_ptr<std::pmr::memory_resource> do_reduction_memory(std::size_t bytes, MemoryUse use) final;
  void do_all_reduce(std::span<float> data) final;
  void do_all_reduce(std::span<double> data) final;
  void do_urgent_all_reduce(std::span<double> data) final;
  void do_all_reduce(const TreeTerms& terms) final;
  void do_reduce_scatter(std::span<float> data) final;
  void do_all_gather(std::span<std::byte> data, std::size_t element_bytes) final;
  void do_broadcast(std::span<std::byte> data, int root) final;
  void do_barrier() final;
  void do_join() final;
  void do_end_long_operation() noexcept final { detector_.end_long_operation(); }
  void do_note_wait(std::string_view text) final { detector_.note_wait(text); }
  double do_set_deadline(double seconds) final { return detector_.set_deadline(seconds); }
  bool do_look_at_peers() final { return detector_.look_at_peers(); }

  void enqueue(const Queued& collective);
  void run_queue(const std::stop_token& stop);
  /// What the thread has to do next, at once. Throws PeerError.
  void run_next(bool urgent, const Queued& collective);
  /// In the computing thread, while the other one has nothing to do.
  void sum_here(std::span<double> data);
  /// At each poll of the thread, for the sum that was posted: true when there was progress.
  bool serve_urgent();
  void run(const Queued& collective);
  /// Of a call of MPI that fails because a peer has died, PeerError says so.
  template <class Work>
  void blaming_the_dead(Work work);
  /// Every rank sends its subtrees' part of each slice to the rank that owns the slice; the owners add up, and gather.
  void run_tree_sum(const TreeTerms& terms);

  WireFormat wire_;
  std::optional<AllReduceLimits> limits_;
  ErrorFeedback feedback_;
  Urgency urgency_;
  FailureDetector detector_;
  std::mutex mutex_;
  std::condition_variable_any wake_;  ///< there is something to do
  std::condition_variable done_;      ///< there is nothing left to do
  std::vector<Queued> queue_;         ///< cleared, never shrunk: steps like the first allocate nothing
  std::size_t finished_ = 0;          ///< of queue_
  std::exception_ptr error_;
  bool rests_ = true;                       ///< the thread
  std::span<double> urgent_;                ///< what was posted
  std::atomic<bool> urgent_posted_{false};  ///< and is not done; changes with mutex_ held
  bool urgent_begun_ = false;
  int awaited_before_ = -1;             ///< by the collective that is overtaken
  double busy_ = 0;                     ///< written by the thread before it reports the last collective finished
  std::vector<float> received_;         ///< subtrees of other ranks
  std::vector<const float*> subtrees_;  ///< of all ranks
  std::vector<MPI_Request> requests_;   ///< receives, then sends
  std::jthread thread_;                 ///< where collectives overlap with computation
};

}  // namespace lockstep::comm
