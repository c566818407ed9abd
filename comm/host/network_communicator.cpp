#include "comm/host/network_communicator.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <mutex>
#include <utility>

#include <sys/prctl.h>

#include "comm/host/pieces.hpp"
#include "comm/host/schedule_times.hpp"
#include "comm/host/tree_sum.hpp"
#include "comm/session/mpi_state.hpp"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

template <class T>
std::span<T> elements(std::span<std::byte> data) {
  return {reinterpret_cast<T*>(data.data()), data.size() / sizeof(T)};
}

}  // namespace

NetworkCommunicator::NetworkCommunicator(MpiSession::State& state, PeerTable peers, const CommunicatorOptions& options)
    : Communicator(state.rank, state.size),
      wire_(options.wire),
      limits_(options.all_reduce.limits),
      detector_(state, std::move(peers), options, urgency_) {
  if (!options.overlap) return;
  detector_.set_overtaking([this] { return serve_urgent(); });
  // Only the main thread handles signals: it reports a requested stop with its next step status.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::jthread([this](const std::stop_token& stop) { run_queue(stop); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void NetworkCommunicator::measure_all_reduce() {
  if (!all_reduce_limits() || ring_length() < 2) return;
  std::vector<ScheduleSeconds> sizes =
      time_schedules(*this, [this](AllReduceSchedule schedule) { limits_ = AllReduceLimits::all_by(schedule); });
  for (ScheduleSeconds& size : sizes) size.bytes = part_of(size.bytes);
  AllReduceLimits best = best_limits(sizes);
  // If no larger sum was timed, halving may still be the fastest for larger ones.
  if (best.halving == sizes.back().bytes) {
    best.halving = std::max(best.halving, AllReduceLimits::usual(ring_length()).halving);
  }
  limits_ = best;
  forget_rounding_errors();
}

void NetworkCommunicator::stop() noexcept {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

Wire NetworkCommunicator::wire_of(std::span<const float> data) noexcept {
  return {.format = wire_, .residual = feedback_.errors_of(data)};
}

std::unique_ptr<std::pmr::memory_resource> NetworkCommunicator::do_reduction_memory(std::size_t bytes, MemoryUse use) {
  std::unique_ptr<ReductionMemory> memory = take_memory(bytes);
  if (use == MemoryUse::reduced && keeps_errors(wire_)) {
    const ErrorFeedback::Errors* const errors = feedback_.add(memory->block());
    memory->on_release([this, errors] { feedback_.remove(errors); });
  }
  return memory;
}

void NetworkCommunicator::do_begin_long_operation(const char* what) {
  do_join();  // afterwards only the heartbeat thread calls MPI
  detector_.begin_long_operation(what);
}

// The queue -----------------------------------------------------------------------------------------------------------

void NetworkCommunicator::do_all_reduce(std::span<float> data) {
  enqueue({.operation = Collective::all_reduce, .data = std::as_writable_bytes(data), .element_bytes = sizeof(float)});
}
void NetworkCommunicator::do_all_reduce(std::span<double> data) {
  enqueue({.operation = Collective::all_reduce, .data = std::as_writable_bytes(data), .element_bytes = sizeof(double)});
}
void NetworkCommunicator::do_all_reduce(const TreeTerms& terms) {
  enqueue({.operation = Collective::all_reduce,
           .data = std::as_writable_bytes(terms.data),
           .element_bytes = sizeof(float),
           .terms = terms});
}
void NetworkCommunicator::do_reduce_scatter(std::span<float> data) {
  enqueue(
      {.operation = Collective::reduce_scatter, .data = std::as_writable_bytes(data), .element_bytes = sizeof(float)});
}
void NetworkCommunicator::do_all_gather(std::span<std::byte> data, std::size_t element_bytes) {
  enqueue({.operation = Collective::all_gather, .data = data, .element_bytes = element_bytes});
}
void NetworkCommunicator::do_broadcast(std::span<std::byte> data, int root) {
  enqueue({.operation = Collective::broadcast, .data = data, .root = root});
}
void NetworkCommunicator::do_barrier() { enqueue({.operation = Collective::barrier}); }

template <class Work>
void NetworkCommunicator::blaming_the_dead(Work work) {
  try {
    work();
  } catch (const MpiCallError&) {
    detector_.blame_deaths();
    throw;
  }
}

void NetworkCommunicator::enqueue(const Queued& collective) {
  if (!thread_.joinable()) {
    const auto start = Clock::now();
    blaming_the_dead([&] { run(collective); });
    busy_ += seconds_since(start);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    if (queue_.empty()) urgency_.set(false);
    queue_.push_back(collective);
  }
  wake_.notify_one();
}

void NetworkCommunicator::run_queue(const std::stop_token& stop) {
  // Otherwise sleeps of 50 us would take twice as long, because the kernel delays timers by as much to wake up less
  // often.
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  std::unique_lock lock(mutex_);
  const auto has_work = [this] { return urgent_posted_.load() || finished_ < queue_.size(); };
  while (wake_.wait(lock, stop, has_work) && !stop.stop_requested()) {
    const bool urgent = urgent_posted_.load();
    const Queued collective = urgent ? Queued{.operation = Collective::all_reduce} : queue_[finished_];
    rests_ = false;
    if (!error_) {
      lock.unlock();
      const auto start = Clock::now();
      std::exception_ptr error;
      detector_.set_driven(true);
      try {
        blaming_the_dead([&] { run_next(urgent, collective); });
      } catch (...) {
        error = std::current_exception();
        abandon_urgent();
      }
      detector_.set_driven(false);
      lock.lock();
      busy_ += seconds_since(start);
      error_ = error;
      if (error) urgent_begun_ = false, urgent_posted_ = false;
    }
    rests_ = true;
    if (!urgent) ++finished_;
    if (finished_ == queue_.size()) done_.notify_one();
  }
}

void NetworkCommunicator::run_next(bool urgent, const Queued& collective) {
  if (!urgent) return run(collective);
  detector_.wait_until_done(collective.operation, [this] {
    const bool progress = serve_urgent();
    return !urgent_posted_.load() ? Progress::done : progress ? Progress::some : Progress::none;
  });
}

// Sums that overtake --------------------------------------------------------------------------------------------------

void NetworkCommunicator::do_urgent_all_reduce(std::span<double> data) {
  if (!thread_.joinable() || !can_overtake() || data.size_bytes() > kMaxUrgentBytes) {
    do_all_reduce(data);
    return do_join();
  }
  detector_.expect_overtaking();
  urgency_.set(true);
  std::unique_lock lock(mutex_);
  const bool drives = rests_ && finished_ == queue_.size();
  if (!drives && !error_) {
    urgent_ = data;
    urgent_posted_ = true;
    wake_.notify_one();
    done_.wait(lock, [this] { return error_ ? finished_ == queue_.size() : !urgent_posted_.load(); });
  }
  const bool failed = error_ != nullptr;
  lock.unlock();
  if (failed) return do_join();
  if (drives) sum_here(data);
  if (!queue_.empty()) urgency_.set(false);
}

void NetworkCommunicator::sum_here(std::span<double> data) {
  const auto start = Clock::now();
  try {
    blaming_the_dead([&] {
      begin_urgent(data);
      detector_.wait_until_done(Collective::all_reduce, [this] { return advance_urgent(); });
    });
  } catch (...) {
    abandon_urgent();
    throw;
  }
  busy_ += seconds_since(start);
}

bool NetworkCommunicator::serve_urgent() {
  if (!urgent_posted_.load(std::memory_order_acquire)) return false;
  if (!std::exchange(urgent_begun_, true)) {
    awaited_before_ = detector_.awaited();
    begin_urgent(urgent_);
  }
  const Progress progress = advance_urgent();
  if (progress != Progress::done) return progress == Progress::some;
  detector_.await(awaited_before_);
  urgent_begun_ = false;
  {
    const std::lock_guard lock(mutex_);
    urgent_posted_ = false;
  }
  done_.notify_one();
  return true;
}

void NetworkCommunicator::run(const Queued& collective) {
  switch (collective.operation) {
    case Collective::all_reduce:
      if (collective.terms.tree != nullptr) return run_tree_sum(collective.terms);
      return collective.element_bytes == sizeof(float) ? run_all_reduce(elements<float>(collective.data))
                                                       : run_all_reduce(elements<double>(collective.data));
    case Collective::reduce_scatter:
      return run_reduce_scatter(elements<float>(collective.data));
    case Collective::all_gather:
      return run_all_gather(collective.data, collective.element_bytes);
    case Collective::broadcast:
      return run_broadcast(collective.data, collective.root);
    case Collective::barrier:
    case Collective::memory:
      break;
  }
  run_barrier();
}

void NetworkCommunicator::run_tree_sum(const TreeTerms& terms) {
  constexpr int kTreeTag = 4;
  const SummationTree& tree = *terms.tree;
  MpiSession::State& state = detector_.state();
  detector_.enter();
  const Slice own = own_slice(terms.data.size(), rank());
  constexpr std::size_t kPiece = kPieceBytes / sizeof(float);
  received_.resize(tree.steps_over_subtrees().size() * own.count);
  subtrees_.clear();
  requests_.clear();
  for (int peer = 0; peer < size(); ++peer) {
    for (int k = 0; k < tree.subtrees(peer); ++k) {
      float* const place = received_.data() + subtrees_.size() * own.count;
      subtrees_.push_back(peer != rank() ? place : terms.subtree(k, tree.subtrees(peer)).data() + own.offset);
      if (peer == rank()) continue;
      for_each_piece(own.count, kPiece, [&](std::size_t offset, std::size_t count) {
        const std::lock_guard lock(*state.mpi);
        check(MPI_Irecv(place + offset, static_cast<int>(count), MPI_FLOAT, peer, kTreeTag, state.data,
                        &requests_.emplace_back()),
              "MPI_Irecv", state, peer);
      });
    }
  }
  const std::size_t receives = requests_.size();
  for (int distance = 1; distance < size(); ++distance) {  // different ranks send to different ranks at a time
    const int owner = (rank() + distance) % size();
    const Slice theirs = own_slice(terms.data.size(), owner);
    for (int k = 0; k < tree.subtrees(rank()); ++k) {
      const float* const part = terms.subtree(k, tree.subtrees(rank())).data() + theirs.offset;
      for_each_piece(theirs.count, kPiece, [&](std::size_t offset, std::size_t count) {
        const std::lock_guard lock(*state.mpi);
        check(MPI_Isend(part + offset, static_cast<int>(count), MPI_FLOAT, owner, kTreeTag, state.data,
                        &requests_.emplace_back()),
              "MPI_Isend", state, owner);
      });
    }
  }
  try {
    std::size_t done = 0;
    detector_.wait_until_done(Collective::all_reduce, [&] {
      const std::size_t before = done;
      const std::lock_guard lock(*state.mpi);
      for (int complete = 1; done < requests_.size() && complete; done += complete ? 1 : 0) {
        check(MPI_Test(&requests_[done], &complete, MPI_STATUS_IGNORE), "MPI_Test", state);
      }
      return done == requests_.size() ? Progress::done : done > before ? Progress::some : Progress::none;
    });
  } catch (...) {
    const std::lock_guard lock(*state.mpi);
    call_back(std::span(requests_).first(receives));
    throw;
  }
  float* const result = terms.data.data() + own.offset;
  tree_sum_into(std::span(&result, 1), subtrees_, tree, 0, own.count);
  run_all_gather(std::as_writable_bytes(terms.data), sizeof(float));
}

void NetworkCommunicator::do_join() {
  if (!thread_.joinable()) return;
  std::unique_lock lock(mutex_);
  urgency_.set(true);
  done_.wait(lock, [this] { return finished_ == queue_.size(); });
  queue_.clear();
  finished_ = 0;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace lockstep::comm
