#include "comm/threaded_reduction.hpp"

#include <chrono>
#include <csignal>
#include <stdexcept>
#include <utility>

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

ThreadedReduction::ThreadedReduction(Communicator& communicator) : communicator_(communicator) {
  // Signals are the main thread's: it says with its next vote that a stop was asked for.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ThreadedReduction::~ThreadedReduction() {
  thread_.request_stop();
  wake_.notify_all();
  thread_.join();
  communicator_.set_urgent(true);
}

void ThreadedReduction::sum(std::span<float> data, const Wire& wire) {
  enqueue({.kind = Kind::sum, .data = data, .wire = wire});
}
void ThreadedReduction::sum(std::span<double> data) { enqueue({.kind = Kind::sum_of_doubles, .doubles = data}); }
void ThreadedReduction::scatter_sum(std::span<float> data, const Wire& wire) {
  enqueue({.kind = Kind::scatter, .data = data, .wire = wire});
}
void ThreadedReduction::gather(std::span<float> data) { enqueue({.kind = Kind::gather, .data = data}); }

void ThreadedReduction::sum_bf16(std::span<std::uint16_t>) {
  throw std::invalid_argument("sums of bfloat16 are made on GPUs only");
}

void ThreadedReduction::enqueue(const Errand& errand) {
  {
    const std::lock_guard lock(mutex_);
    if (errands_.empty()) communicator_.set_urgent(false);
    errands_.push_back(errand);
  }
  wake_.notify_one();
}

void ThreadedReduction::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (wake_.wait(lock, stop, [this] { return finished_ < errands_.size(); }) && !stop.stop_requested()) {
    const Errand errand = errands_[finished_];
    if (!error_) {
      lock.unlock();
      const auto start = Clock::now();
      std::exception_ptr error;
      try {
        work_on(errand);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      busy_ += seconds_since(start);
      error_ = error;
    }
    if (++finished_ == errands_.size()) done_.notify_one();
  }
}

void ThreadedReduction::work_on(const Errand& errand) {
  switch (errand.kind) {
    case Kind::sum: return communicator_.all_reduce_sum(errand.data, errand.wire);
    case Kind::sum_of_doubles: return communicator_.all_reduce_sum(errand.doubles);
    case Kind::scatter: return communicator_.reduce_scatter_sum(errand.data, errand.wire);
    case Kind::gather: return communicator_.all_gather(errand.data);
  }
}

void ThreadedReduction::join() {
  const auto start = Clock::now();
  std::unique_lock lock(mutex_);
  communicator_.set_urgent(true);
  done_.wait(lock, [this] { return finished_ == errands_.size(); });
  errands_.clear();
  finished_ = 0;
  exposed_ += seconds_since(start);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadedReduction::wait(const char*, std::int64_t) { join(); }

}  // namespace lockstep::comm
