#include "support/cuda_on_cpu.hpp"

#include <algorithm>
#include <cassert>
#include <csetjmp>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <ucontext.h>

#include "model/cuda/kernels/launch.cuh"
#include "support/fiber_sanitizers.hpp"

namespace lockstep::model::cuda {

namespace {

/// Bytes of shared memory: maximum of a kernel, maximum on request, and a guard behind it.
constexpr std::size_t kMaxShared = 48 * 1024, kMaxOptional = 227 * 1024, kGuard = 1024;

}  // namespace

uint4 shared_memory[(kMaxOptional + kGuard) / sizeof(uint4)];

}  // namespace lockstep::model::cuda

namespace lockstep::test {

namespace cuda_on_cpu {

namespace {

using model::cuda::Grid;
using model::cuda::kGuard;
using model::cuda::kMaxOptional;
using model::cuda::kMaxShared;

constexpr unsigned kWarp = 32;
constexpr std::byte kPoison{0xff};  ///< floats and doubles of this byte are NaN
constexpr std::size_t kStackBytes = 64 * 1024;

std::uint32_t order_seed = 0;
std::int64_t grid_count = 0;
/// It may be set before main(), before this file's variables are initialised.
std::function<cudaError_t(LaunchedGrid)>& grid_receiver() {
  static std::function<cudaError_t(LaunchedGrid)> receiver;
  return receiver;
}

/// A stack. Threads run on it one after the other until one must wait; then the stack belongs to the waiting thread.
/// Switches save and restore registers with setjmp and longjmp, because swapcontext() makes a system call each time.
struct Fiber {
  ucontext_t start{};
  sigjmp_buf registers{};
  bool has_started = false;
  std::unique_ptr<std::byte[]> stack;  ///< null: the stack that run_grid() was called on
  FiberSanitizers sanitizers;
};

void switch_fibers(Fiber& from, Fiber& to) {
  if (sigsetjmp(from.registers, 0) == 0) {
    from.sanitizers.leave(to.sanitizers);
    if (to.has_started) siglongjmp(to.registers, 1);
    to.has_started = true;
    setcontext(&to.start);
  }
  from.sanitizers.arrive();
}

enum class State { not_started, running, ready, at_barrier, at_exchange, ended };

struct Thread {
  Place place;
  unsigned number = 0, rank = 0;  ///< number in the kernel; rank in the order of this run
  State state = State::not_started;
  Here here;  ///< the point at which it waits
  Fiber* fiber = nullptr;
  unsigned mask = 0, source = 0;
  Exchange what{};
  std::uint64_t bits = 0, result = 0;
  char arrived = 0, resolved[2] = {};  ///< handed over at __syncwarp; `resolved` by the last of its lanes
  unsigned resolutions = 0;
  char* resolution = nullptr;  ///< `resolved` of another lane, to take over
};

/// Kept from grid to grid, because new stacks cost more than most kernels.
std::vector<std::unique_ptr<Fiber>> fibers;
std::vector<Fiber*> idle_fibers;

class Machine;
Machine* machine = nullptr;
Thread* current_thread = nullptr;

/// Runs one block after the other.
class Machine {
 public:
  Machine(const char* kernel, const std::function<void()>& body) : kernel_(kernel), body_(body) {
    home_.has_started = true;
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  void run_block(const Place& place, unsigned count, const std::vector<unsigned>& order) {
    const Unwatched guard;
    threads_.assign(count, Thread{});
    for (unsigned t = 0; t < count; ++t) {
      threads_[t].number = t;
      threads_[t].place = place;
      threads_[t].place.thread = {t, 0, 0};
    }
    order_ = order;
    for (unsigned rank = 0; rank < count; ++rank) threads_[order[rank]].rank = rank;
    arrived_.assign(count / kWarp + 1, 0);
    next_ = 0;
    ended_ = 0;
    ready_.clear();
    ready_head_ = 0;
    machine = this;
    if (kThreadSanitizer) prepare_for_thread_sanitizer(count);
    hand_over(begin_);
    switch_fibers(home_, idle_fiber());
    take_over(end_);
    machine = nullptr;
    if (ended_ != threads_.size()) fail();
  }

  void wait_at_barrier(const Here& here) {
    const Unwatched guard;
    Thread& self = *current_thread;
    // Two suffice: all threads leave this barrier before the one after the next.
    char& barrier = barriers_[opened_ % 2];
    hand_over(barrier);
    hand_over(end_);  // in case this thread waits forever
    self.state = State::at_barrier;
    self.here = here;
    go_on(self);
    take_over(barrier);
  }

  std::uint64_t exchange(unsigned mask, Exchange what, std::uint64_t bits, unsigned source, const Here& here) {
    const Unwatched guard;
    Thread& self = *current_thread;
    hand_over(end_);
    if (what == Exchange::synchronize) hand_over(self.arrived);  // the other exchanges do not order memory
    self.mask = mask;
    self.what = what;
    self.bits = bits;
    self.source = source;
    self.here = here;
    self.state = State::at_exchange;
    unsigned& arrived = arrived_[self.number / kWarp];
    arrived |= 1u << self.number % kWarp;
    if ((arrived & mask) == mask && all_agree(self)) {
      arrived &= ~mask;
      resolve(self);
    }
    go_on(self);
    if (what == Exchange::synchronize) take_over(*self.resolution);
    return self.result;
  }

 private:
  /// ThreadSanitizer must see the creation of a fiber before it runs, and an allocation before its release. So this
  /// function creates the fibers and reserves the memory beforehand.
  void prepare_for_thread_sanitizer(unsigned count) {
    ready_.reserve(count);
    idle_fibers.reserve(2048);
    std::vector<Fiber*> held;
    while (held.size() < count) held.push_back(&idle_fiber());
    idle_fibers.insert(idle_fibers.end(), held.begin(), held.end());
  }

  Fiber& idle_fiber() {
    if (idle_fibers.empty()) {
      Fiber& fiber = *fibers.emplace_back(std::make_unique<Fiber>());
      fiber.stack = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
      fiber.sanitizers.prepare(fiber.stack.get(), kStackBytes);
      getcontext(&fiber.start);
      fiber.start.uc_stack.ss_sp = fiber.stack.get();
      fiber.start.uc_stack.ss_size = kStackBytes;
      fiber.start.uc_link = nullptr;
      makecontext(
          &fiber.start, [] { machine->live(); }, 0);
      idle_fibers.push_back(&fiber);
    }
    Fiber& fiber = *idle_fibers.back();
    idle_fibers.pop_back();
    running_ = &fiber;
    return fiber;
  }

  /// The main loop of a fiber. Fibers outlive machines.
  static void live() {
    std::optional<Unwatched> guard(std::in_place);
    Fiber& fiber = *machine->running_;
    fiber.sanitizers.arrive();
    while (true) machine->take_turn(fiber, guard);
  }

  /// Runs threads that have not started; then switches to threads that are ready.
  void take_turn(Fiber& fiber, std::optional<Unwatched>& guard) {
    while (next_ < order_.size()) {
      Thread& thread = threads_[order_[next_++]];
      thread.fiber = &fiber;
      thread.state = State::running;
      current_thread = &thread;
      take_over(begin_);
      guard.reset();
      body_();
      guard.emplace();
      hand_over(end_);
      thread.state = State::ended;
      ++ended_;
    }
    idle_fibers.push_back(&fiber);
    switch_fibers(fiber, next_fiber());
  }

  /// Runs on the fiber of a waiting thread: runs other threads until this one is ready.
  void go_on(Thread& self) {
    Fiber& next = next_ < order_.size() ? idle_fiber() : next_fiber();
    if (&next != self.fiber) switch_fibers(*self.fiber, next);
    self.state = State::running;
    current_thread = &self;
    running_ = self.fiber;
  }

  /// Returns the fiber of the next ready thread; `home` if there is none.
  Fiber& next_fiber() {
    if (ready_head_ == ready_.size()) open_barrier();
    if (ready_head_ == ready_.size()) return home_;
    return *ready_[ready_head_++]->fiber;
  }

  /// Queues threads behind the ready ones, or, in odd orders, before them: then a warp runs ahead of the others as far
  /// as it can.
  void make_ready(std::vector<Thread*>& threads) {
    std::ranges::sort(threads, {}, &Thread::rank);
    for (Thread* const thread : threads) thread->state = State::ready;
    ready_.erase(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(ready_head_));
    ready_head_ = 0;
    ready_.insert(order_seed % 2 == 0 ? ready_.end() : ready_.begin(), threads.begin(), threads.end());
  }

  /// Called when all threads of the block wait at one barrier.
  void open_barrier() {
    const Here& here = threads_[0].here;
    std::vector<Thread*> all;
    for (Thread& thread : threads_) {
      if (thread.state != State::at_barrier || thread.here.line() != here.line()) return;
      all.push_back(&thread);
    }
    ++opened_;
    make_ready(all);
  }

  template <class Visit>
  void for_lanes(const Thread& self, const Visit& visit) {
    const unsigned first = self.number / kWarp * kWarp;
    for (unsigned lane = 0; lane < kWarp && first + lane < threads_.size(); ++lane) {
      if ((self.mask >> lane & 1) != 0) visit(lane, threads_[first + lane]);
    }
  }

  /// True if all lanes of the mask wait for the same thing, and this thread is one of them.
  bool all_agree(const Thread& self) {
    bool all = (self.mask >> self.number % kWarp & 1) != 0;
    for_lanes(self, [&](unsigned, const Thread& thread) {
      all = all && thread.mask == self.mask && thread.what == self.what && thread.here.line() == self.here.line();
    });
    return all;
  }

  void resolve(const Thread& self) {
    const unsigned first = self.number / kWarp * kWarp;
    std::uint64_t ballot = 0;
    std::vector<Thread*> all;
    for_lanes(self, [&](unsigned lane, Thread& thread) {
      ballot |= std::uint64_t{thread.bits != 0} << lane;
      // A lane outside the mask passes no value: reading it gives an arbitrary value.
      const bool is_named = (thread.mask >> thread.source & 1) != 0;
      thread.result = is_named ? threads_[first + thread.source].bits : ~std::uint64_t{0};
      all.push_back(&thread);
    });
    if (self.what == Exchange::synchronize) {
      char& resolved = current_thread->resolved[current_thread->resolutions++ % 2];
      for (Thread* const thread : all) take_over(thread->arrived);
      hand_over(resolved);
      for (Thread* const thread : all) thread->resolution = &resolved;
    }
    if (self.what == Exchange::ballot) {
      for (Thread* const thread : all) thread->result = ballot;
    }
    make_ready(all);
  }

  /// Throws because threads wait and none can wake them.
  [[noreturn]] void fail() {
    std::map<std::string, int> places;
    for (const Thread& thread : threads_) {
      const std::string file = thread.here.file_name();
      const std::string at = fmt::format("{}:{}", file.substr(file.rfind('/') + 1), thread.here.line());
      ++places[thread.state == State::ended        ? "ended"
               : thread.state == State::at_barrier ? "wait at the barrier in " + at
                                                   : "wait at the shuffle in " + at];
    }
    std::string list;
    for (const auto& [text, count] : places) list += fmt::format("{}{} {}", list.empty() ? "" : ", ", count, text);
    const uint3 block = threads_[0].place.block;
    // Waiting fibers can never continue.
    for (const auto& fiber : fibers) fiber->sanitizers.abandon(fiber->stack.get(), kStackBytes);
    idle_fibers.clear();
    fibers.clear();
    throw KernelFault(fmt::format("kernel {}, block ({}, {}): its threads wait for each other: of {} {}", kernel_,
                                  block.x, block.y, threads_.size(), list));
  }

  const char* kernel_;
  const std::function<void()>& body_;
  std::vector<Thread> threads_;
  std::vector<unsigned> order_;
  std::vector<unsigned> arrived_;  ///< lanes at an exchange, by warp
  std::size_t next_ = 0, ended_ = 0;
  std::vector<Thread*> ready_;
  std::size_t ready_head_ = 0;
  std::size_t opened_ = 0;                       ///< number of opened barriers
  char begin_ = 0, end_ = 0, barriers_[2] = {};  ///< handed over
  Fiber home_;
  Fiber* running_ = nullptr;
};

std::vector<unsigned> order_of(std::size_t count, std::uint32_t salt) {
  std::vector<unsigned> order(count);
  std::iota(order.begin(), order.end(), 0u);
  if (order_seed == 1) std::ranges::reverse(order);
  if (order_seed > 1) {
    std::mt19937 random(order_seed * 65537u + salt);
    std::ranges::shuffle(order, random);
  }
  return order;
}

}  // namespace

const Place& place() {
  assert(current_thread != nullptr);
  return current_thread->place;
}

unsigned lane() { return current_thread->number % kWarp; }

void synchronize_block(const Here& here) { machine->wait_at_barrier(here); }

std::uint64_t exchange(unsigned mask, Exchange what, std::uint64_t bits, unsigned source, const Here& here) {
  return machine->exchange(mask, what, bits, source, here);
}

}  // namespace cuda_on_cpu

void order_threads(std::uint32_t seed) { cuda_on_cpu::order_seed = seed; }
void send_grids(std::function<cudaError_t(LaunchedGrid)> receiver) {
  cuda_on_cpu::grid_receiver() = std::move(receiver);
}
std::int64_t grids_run() { return cuda_on_cpu::grid_count; }

}  // namespace lockstep::test

namespace lockstep::model::cuda {

namespace {

void run_blocks(const char* name, const Grid& grid, const std::function<void()>& thread) {
  using namespace lockstep::test;
  using namespace lockstep::test::cuda_on_cpu;
  ++grid_count;
  auto* const memory = reinterpret_cast<std::byte*>(shared_memory);
  Machine blocks(name, thread);
  for (const unsigned block : order_of(std::size_t{grid.blocks} * grid.parts, 0)) {
    std::fill_n(memory, grid.shared_bytes + kGuard, kPoison);
    blocks.run_block({.block = {block % grid.blocks, block / grid.blocks, 0},
                      .block_size = dim3(grid.threads),
                      .grid_size = dim3(grid.blocks, grid.parts)},
                     grid.threads, order_of(grid.threads, block));
    if (std::any_of(memory + grid.shared_bytes, memory + grid.shared_bytes + kGuard,
                    [](std::byte b) { return b != kPoison; })) {
      throw KernelFault(fmt::format("kernel {}, block ({}, {}): wrote past its {} bytes of shared memory", name,
                                    block % grid.blocks, block / grid.blocks, grid.shared_bytes));
    }
  }
}

}  // namespace

cudaError_t run_grid(const char* name, const Grid& grid, cudaStream_t stream, std::span<const KernelArgument> arguments,
                     const std::function<void()>& thread) {
  // A GPU refuses such launches.
  if (grid.blocks == 0 || grid.parts == 0 || grid.threads == 0 || grid.threads > 1024 || grid.parts > 65535 ||
      grid.blocks > 0x7fffffffu ||
      grid.shared_bytes > (grid.shared_limit == SharedLimit::of_device ? kMaxOptional : kMaxShared)) {
    return cudaErrorInvalidConfiguration;
  }
  if (const auto& receiver = test::cuda_on_cpu::grid_receiver()) {
    return receiver({name, stream, arguments, [=] { run_blocks(name, grid, thread); }});
  }
  run_blocks(name, grid, thread);
  return cudaSuccess;
}

}  // namespace lockstep::model::cuda
