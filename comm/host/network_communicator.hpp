/// \file
/// Base of the communicators between hosts: failure detection, the wire format with its rounding errors, and the thread
/// that drives collectives concurrently with the computation.
///
/// REASON FOR THE THREAD. Messages advance only while a thread is inside MPI. A nonblocking collective that is started
/// and tested only after the computation has hardly advanced by then; a dedicated thread keeps the network busy.
///
/// ONE THREAD AT A TIME. From the first enqueued collective to the end of join(), only the thread calls MPI
/// (MPI_THREAD_SERIALIZED). Collectives run in the order in which they are enqueued, with the same calls as without the
/// thread: the same bits.
///
/// SUMS THAT OVERTAKE. A small sum for which the computation must wait (batch statistics) would wait for all enqueued
/// buckets. It therefore does not join the queue. A thread that waits for messages of a bucket, or for ranks of its
/// host, advances this sum at each poll. The sum's messages have their own tag; its schedule, and thus its bits, are
/// those of any sum of its size. It only requires that all ranks call it, at any point of their buckets. If no bucket
/// is under way, the computing thread drives it. At any time one thread calls MPI and waits, with one patience: while
/// either of the two advances, no rank counts as stuck.
///
/// SHARE OF THE CORES. If the ranks of a kernel have a core for the thread besides the computing ones, the thread
/// polls, yields and sleeps like any wait. Otherwise it sleeps between its polls while the main thread computes, and
/// polls at full speed while the main thread waits in join() (Urgency).
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
  /// Collective, before any other collective. Selects the schedules that are fastest here for all later sums, if any
  /// travel between hosts. Throws PeerError.
  void measure_all_reduce();
  void forget_rounding_errors() noexcept override { feedback_.forget(); }
  double busy_seconds() const noexcept override { return busy_; }
  /// Limit for sums that overtake.
  static constexpr std::size_t kMaxUrgentBytes = std::size_t{128} << 10;
  std::vector<int> dead_peers() const override { return detector_.dead_peers(); }

 protected:
  /// The session owns `state` and outlives this.
  NetworkCommunicator(MpiSession::State& state, PeerTable peers, const CommunicatorOptions& options);

  FailureDetector& detector() noexcept { return detector_; }
  const FailureDetector& detector() const noexcept { return detector_; }
  const Urgency& urgency() const noexcept { return urgency_; }
  /// The limits for a ring of this many positions, as requested in the options.
  AllReduceLimits limits_of(int positions) const noexcept {
    return limits_.value_or(AllReduceLimits::usual(positions));
  }
  /// The share of one ring in a sum of `bytes`.
  virtual std::size_t part_of(std::size_t bytes) const noexcept { return bytes; }
  /// The wire format of these data, and their residual.
  Wire wire_of(std::span<const float> data) noexcept;
  /// Stops the thread. Derived destructors call it first, because the thread uses the whole object. Drops collectives
  /// that have not begun, and waits for the one under way.
  void stop() noexcept;

  void do_note_activity(const char* what, std::int64_t step) noexcept override { detector_.note_activity(what, step); }
  void do_begin_long_operation(const char* what) override;

 private:
  struct Queued {
    Collective operation;
    std::span<std::byte> data = {};
    std::size_t element_bytes = 1;  ///< identifies the type of a sum's elements
    int root = 0;
    TreeTerms terms = {};  ///< terms of a sum by a tree
  };

  /// The collectives themselves, run by the thread or directly.
  virtual std::unique_ptr<ReductionMemory> take_memory(std::size_t bytes) = 0;
  virtual void run_all_reduce(std::span<float> data) = 0;
  virtual void run_all_reduce(std::span<double> data) = 0;
  virtual void run_reduce_scatter(std::span<float> data) = 0;
  virtual void run_all_gather(std::span<std::byte> data, std::size_t element_bytes) = 0;
  virtual void run_broadcast(std::span<std::byte> data, int root) = 0;
  virtual void run_barrier() = 0;

  /// A sum of up to kMaxUrgentBytes that overtakes the queue. can_overtake() is the same on all ranks.
  virtual bool can_overtake() const noexcept { return false; }
  virtual void begin_urgent(std::span<double>) {}
  /// Does all work that needs no waiting.
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
  bool do_check_peers() final { return detector_.check_peers(); }

  void enqueue(const Queued& collective);
  void run_queue(const std::stop_token& stop);
  /// Runs the thread's next work at once. Throws PeerError.
  void run_next(bool urgent, const Queued& collective);
  /// Runs the sum in the computing thread, while the other thread is idle.
  void sum_here(std::span<double> data);
  /// Advances the posted sum at each poll of the thread; true if there was progress.
  bool serve_urgent();
  void run(const Queued& collective);
  /// Turns an error of MPI into PeerError if a peer's death is the cause.
  template <class Work>
  void blaming_the_dead(Work work);
  /// Every rank sends its subtrees' part of each slice to the slice's owner; the owners add, then all gather.
  void run_tree_sum(const TreeTerms& terms);

  WireFormat wire_;
  std::optional<AllReduceLimits> limits_;
  ErrorFeedback feedback_;
  Urgency urgency_;
  FailureDetector detector_;
  std::mutex mutex_;
  std::condition_variable_any wake_;  ///< signals work for the thread
  std::condition_variable done_;      ///< signals an empty queue
  std::vector<Queued> queue_;         ///< cleared, never shrunk: steps like the first allocate nothing
  std::size_t finished_ = 0;          ///< number of finished entries of queue_
  std::exception_ptr error_;
  bool rests_ = true;                       ///< the thread is idle
  std::span<double> urgent_;                ///< data of the posted sum
  std::atomic<bool> urgent_posted_{false};  ///< true until the posted sum is done; changes with mutex_ held
  bool urgent_begun_ = false;
  int awaited_before_ = -1;             ///< awaited rank of the collective that is overtaken
  std::atomic<double> busy_{0};         ///< may be read while the thread adds a collective, before it reports that one
  std::vector<float> received_;         ///< subtrees of other ranks
  std::vector<const float*> subtrees_;  ///< subtrees of all ranks
  std::vector<MPI_Request> requests_;   ///< receives, then sends
  std::jthread thread_;                 ///< running if collectives overlap with computation
};

}  // namespace lockstep::comm
