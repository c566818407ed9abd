/// \file
/// Sums between hosts beside the computation: one thread drives the communicator while the main thread computes.
///
/// WHY A THREAD. Messages advance only while somebody is inside MPI. A nonblocking collective that is started and looked
/// at again after the computation has hardly moved by then; a thread that does nothing else keeps the wire busy.
///
/// ONE AT A TIME. From the first enqueued sum to the end of join() the communicator is the thread's alone, and MPI is
/// called by it only (MPI_THREAD_SERIALIZED). Sums are done in the order in which they are enqueued, with the same
/// calls as without the thread: the same bits.
///
/// ITS SHARE OF THE CORES. While the main thread computes, the waiting thread sleeps between its looks at the network;
/// while the main thread waits in join() it polls at full speed (Communicator::set_urgent).
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/reduction.hpp"

namespace lockstep::comm {

class ThreadedReduction final : public Reduction {
 public:
  using Reduction::sum;
  explicit ThreadedReduction(Communicator& communicator);
  /// What is enqueued and not yet begun is dropped; a sum that is under way is waited for.
  ~ThreadedReduction() override;

  std::string_view transport_name() const noexcept override { return communicator_.transport_name(); }
  std::string description() const override { return {}; }
  void sum(std::span<float> data, const Wire& wire) override;
  void sum(std::span<double> data) override;
  void scatter_sum(std::span<float> data, const Wire& wire) override;
  void gather(std::span<float> data) override;
  /// Throws std::invalid_argument.
  void sum_bf16(std::span<std::uint16_t> data) override;
  /// Throws what went wrong in the thread.
  void join() override;
  void wait(const char* what, std::int64_t step) override;
  double exposed_seconds() const noexcept override { return exposed_; }
  double busy_seconds() const noexcept override { return busy_; }

 private:
  enum class Kind { sum, sum_of_doubles, scatter, gather };
  struct Errand {
    Kind kind;
    std::span<float> data = {};
    Wire wire = {};
    std::span<double> doubles = {};
  };

  void enqueue(const Errand& errand);
  void run(const std::stop_token& stop);
  void work_on(const Errand& errand);

  Communicator& communicator_;
  std::mutex mutex_;
  std::condition_variable_any wake_;  ///< there is something to do
  std::condition_variable done_;      ///< there is nothing left to do
  std::vector<Errand> errands_;       ///< cleared, never shrunk: steps like the first allocate nothing
  std::size_t finished_ = 0;          ///< of errands_
  std::exception_ptr error_;
  double exposed_ = 0;
  double busy_ = 0;  ///< written by the thread before it reports the last errand finished
  std::jthread thread_;
};

}  // namespace lockstep::comm
