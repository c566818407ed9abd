// glibc's check of longjmp() knows no other stacks.
#undef _FORTIFY_SOURCE
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

#include "model/cuda/launch.cuh"
#include "support/fiber_sanitizers.hpp"

namespace lockstep::model::cuda {

namespace {

/// Most shared memory that a block gets without asking for more, when it asks, and a guard behind it.
constexpr std::size_t kMostShared = 48 * 1024, kMostOptional = 227 * 1024, kGuard = 1024;

}  // namespace

}  // namespace lockstep::model::cuda

namespace lockstep::test {

namespace cuda_on_cpu {

namespace {

using model::cuda::Grid;
using model::cuda::kGuard;
using model::cuda::Residence;

constexpr unsigned kWarp = 32;
constexpr std::byte kPoison{0xff};  ///< floats and doubles of it are NaN
constexpr std::size_t kStackBytes = 64 * 1024;
constexpr std::size_t kBarriers = 16;  ///< of a block

std::uint32_t order_seed = 0;
std::span<const unsigned> ignored_words;
std::int64_t grid_count = 0;
/// Set before main(), maybe before this file's variables are.
std::function<cudaError_t(LaunchedGrid)>& grid_receiver() {
  static std::function<cudaError_t(LaunchedGrid)> receiver;
  return receiver;
}

/// A stack that threads run on, one after the other as long as none of them has to wait; it then belongs to the one
/// that waits. Switches save and restore registers with setjmp and longjmp: swapcontext() asks the kernel each time.
struct Fiber {
  ucontext_t start{};
  sigjmp_buf registers{};
  bool has_started = false;
  std::unique_ptr<std::byte[]> stack;  ///< none: the stack that run_grid() was called on
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

enum class State { not_started, running, ready, at_barrier, at_exchange, at_word, ended };

struct Thread {
  Place place;
  unsigned number = 0, rank = 0;  ///< as the kernel counts; as the order of this run has it
  State state = State::not_started;
  Here here;  ///< where it waits
  Fiber* fiber = nullptr;
  unsigned mask = 0, source = 0;
  Exchange what{};
  std::uint64_t bits = 0, result = 0;
  char arrived = 0, resolved[2] = {};  ///< handed over at __syncwarp, the latter by who was the last of its lanes
  unsigned resolutions = 0;
  char* resolution = nullptr;      ///< to take over
  const unsigned* word = nullptr;  ///< of those who wait for other blocks
  bool wanted = false;
};

/// One of a block's: who has come to it.
struct Barrier {
  std::vector<Thread*> waiting;
  std::size_t opened = 0;
  char passed[2] = {};  ///< handed over, in turn: one is reached again when all have left it
};

/// Shared memory of the blocks that run now, each with a guard behind it.
std::vector<std::unique_ptr<uint4[]>> block_memories;

/// Kept from grid to grid: fresh stacks cost more than most kernels.
std::vector<std::unique_ptr<Fiber>> fibers;
std::vector<Fiber*> idle_fibers;

class Machine;
Machine* machine = nullptr;
Thread* current_thread = nullptr;

/// Runs the threads of one block, or of all blocks of a cooperative grid.
class Machine {
 public:
  Machine(const char* kernel, const std::function<void()>& body) : kernel_(kernel), body_(body) {
    home_.has_started = true;
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// `order`: of the threads of all these blocks, each of `count`.
  void run_blocks(const std::vector<Place>& blocks, unsigned count, const std::vector<unsigned>& order) {
    const Unwatched guard;
    count_ = count;
    threads_.assign(blocks.size() * count, Thread{});
    for (unsigned t = 0; t < threads_.size(); ++t) {
      threads_[t].number = t;
      threads_[t].place = blocks[t / count];
      threads_[t].place.thread = {t % count, 0, 0};
    }
    order_ = order;
    for (unsigned rank = 0; rank < threads_.size(); ++rank) threads_[order[rank]].rank = rank;
    arrived_.assign(threads_.size() / kWarp + 1, 0);
    barriers_.assign(blocks.size() * kBarriers, Barrier{});
    next_ = 0;
    ended_ = 0;
    ready_.clear();
    ready_head_ = 0;
    at_words_.clear();
    machine = this;
    if (kThreadSanitizer) prepare_for_thread_sanitizer(static_cast<unsigned>(threads_.size()));
    hand_over(begin_);
    switch_fibers(home_, idle_fiber());
    take_over(end_);
    machine = nullptr;
    if (ended_ != threads_.size()) fail();
  }

  void wait_at_barrier(unsigned number, unsigned count, const Here& here) {
    const Unwatched guard;
    Thread& self = *current_thread;
    Barrier& barrier = barriers_[self.place.resident * kBarriers + number];
    char& passed = barrier.passed[barrier.opened % 2];  // the next one but one is reached when all have left this one
    hand_over(passed);
    hand_over(end_);  // should this thread wait for ever
    self.state = State::at_barrier;
    self.here = here;
    barrier.waiting.push_back(&self);
    if (barrier.waiting.size() == (number == 0 ? count_ : count)) open(barrier);
    go_on(self);
    take_over(passed);
  }

  void add_to_word(unsigned* word, unsigned value) {
    const Unwatched guard;
    hand_over(reinterpret_cast<char&>(*word));
    *word += value;
    std::vector<Thread*> all;
    std::erase_if(at_words_, [&](Thread* thread) {
      if (thread->word != word || *word >> 31 != static_cast<unsigned>(thread->wanted)) return false;
      all.push_back(thread);
      return true;
    });
    make_ready(all);
  }

  void wait_for_word(const unsigned* word, bool wanted, const Here& here) {
    const Unwatched guard;
    if (word >= ignored_words.data() && word < ignored_words.data() + ignored_words.size()) return;
    if (*word >> 31 != static_cast<unsigned>(wanted)) {
      Thread& self = *current_thread;
      hand_over(end_);
      self.state = State::at_word;
      self.here = here;
      self.word = word;
      self.wanted = wanted;
      at_words_.push_back(&self);
      go_on(self);
    }
    take_over(const_cast<char&>(reinterpret_cast<const char&>(*word)));
  }

  std::uint64_t exchange(unsigned mask, Exchange what, std::uint64_t bits, unsigned source, const Here& here) {
    const Unwatched guard;
    Thread& self = *current_thread;
    hand_over(end_);
    if (what == Exchange::synchronize) hand_over(self.arrived);  // the others order no memory
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
  /// Who makes a fiber comes before it, and who allocates memory before whoever frees it: all that is done here.
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

  /// The life of a fiber, which outlives machines.
  static void live() {
    std::optional<Unwatched> guard(std::in_place);
    Fiber& fiber = *machine->running_;
    fiber.sanitizers.arrive();
    while (true) machine->take_turn(fiber, guard);
  }

  /// Threads that have not started, as long as there are any; then others' turn.
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

  /// On the fiber of a thread that waits: runs others until it is its turn.
  void go_on(Thread& self) {
    Fiber& next = next_ < order_.size() ? idle_fiber() : next_fiber();
    if (&next != self.fiber) switch_fibers(*self.fiber, next);
    self.state = State::running;
    current_thread = &self;
    running_ = self.fiber;
  }

  /// Of the next thread that may go on; home, where there is none.
  Fiber& next_fiber() {
    if (ready_head_ == ready_.size()) return home_;
    return *ready_[ready_head_++]->fiber;
  }

  /// Behind those that are ready already, or, in odd orders, before them: then a warp runs ahead of the others as far
  /// as it can.
  void make_ready(std::vector<Thread*>& threads) {
    std::ranges::sort(threads, {}, &Thread::rank);
    for (Thread* const thread : threads) thread->state = State::ready;
    ready_.erase(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(ready_head_));
    ready_head_ = 0;
    ready_.insert(order_seed % 2 == 0 ? ready_.end() : ready_.begin(), threads.begin(), threads.end());
  }

  /// Where all whom the barrier waits for have come to the same place.
  void open(Barrier& barrier) {
    for (const Thread* const thread : barrier.waiting) {
      if (thread->here.line() != barrier.waiting[0]->here.line()) return;
    }
    ++barrier.opened;
    make_ready(barrier.waiting);
    barrier.waiting.clear();
  }

  template <class Visit>
  void for_lanes(const Thread& self, const Visit& visit) {
    const unsigned first = self.number / kWarp * kWarp;
    for (unsigned lane = 0; lane < kWarp && first + lane < threads_.size(); ++lane) {
      if ((self.mask >> lane & 1) != 0) visit(lane, threads_[first + lane]);
    }
  }

  /// Whether all lanes of the mask wait for the same thing, and this thread is one of them.
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
      // A lane outside of the mask hands in nothing: what is read of it is anything.
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

  /// Threads wait, and nobody will wake them.
  [[noreturn]] void fail() {
    std::map<std::string, int> places;
    for (const Thread& thread : threads_) {
      const std::string file = thread.here.file_name();
      const std::string at = fmt::format("{}:{}", file.substr(file.rfind('/') + 1), thread.here.line());
      ++places[thread.state == State::ended        ? "ended"
               : thread.state == State::at_barrier ? "wait at the barrier in " + at
               : thread.state == State::at_word    ? "wait for other blocks in " + at
                                                   : "wait at the shuffle in " + at];
    }
    std::string list;
    for (const auto& [text, count] : places) list += fmt::format("{}{} {}", list.empty() ? "" : ", ", count, text);
    const auto waits = std::ranges::find_if(threads_, [](const Thread& it) { return it.state != State::ended; });
    const uint3 block = waits->place.block;
    // Fibers that wait can never go on.
    for (const auto& fiber : fibers) fiber->sanitizers.abandon(fiber->stack.get(), kStackBytes);
    idle_fibers.clear();
    fibers.clear();
    throw KernelFault(fmt::format("kernel {}, block ({}, {}): its threads wait for each other: of {} {}", kernel_,
                                  block.x, block.y, threads_.size(), list));
  }

  const char* kernel_;
  const std::function<void()>& body_;
  std::vector<Thread> threads_;
  unsigned count_ = 0;  ///< of a block
  std::vector<unsigned> order_;
  std::vector<unsigned> arrived_;  ///< lanes at an exchange, by warp
  std::vector<Barrier> barriers_;  ///< of each block, kBarriers
  std::vector<Thread*> at_words_;  ///< wait for other blocks
  std::size_t next_ = 0, ended_ = 0;
  std::vector<Thread*> ready_;
  std::size_t ready_head_ = 0;
  char begin_ = 0, end_ = 0;  ///< handed over
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

void synchronize_some(unsigned barrier, unsigned count, const Here& here) {
  machine->wait_at_barrier(barrier, count, here);
}

void add_to_word(unsigned* word, unsigned value) { machine->add_to_word(word, value); }

void wait_for_word(const unsigned* word, bool wanted, const Here& here) { machine->wait_for_word(word, wanted, here); }

std::uint64_t exchange(unsigned mask, Exchange what, std::uint64_t bits, unsigned source, const Here& here) {
  return machine->exchange(mask, what, bits, source, here);
}

}  // namespace cuda_on_cpu

void order_threads(std::uint32_t seed) { cuda_on_cpu::order_seed = seed; }
void ignore_grid_waits(std::span<const unsigned> words) { cuda_on_cpu::ignored_words = words; }
void send_grids(std::function<cudaError_t(LaunchedGrid)> receiver) {
  cuda_on_cpu::grid_receiver() = std::move(receiver);
}
std::int64_t grids_run() { return cuda_on_cpu::grid_count; }

}  // namespace lockstep::test

namespace lockstep::model::cuda {

namespace {

/// Blocks that run side by side, with fresh shared memory.
void run_blocks(const char* name, const Grid& grid, test::cuda_on_cpu::Machine& machine, std::vector<unsigned> blocks) {
  using namespace lockstep::test;
  using namespace lockstep::test::cuda_on_cpu;
  std::vector<Place> places;
  std::vector<unsigned> order;
  for (const unsigned block : blocks) {
    const auto resident = static_cast<unsigned>(places.size());
    if (block_memories.size() == resident) {
      block_memories.push_back(std::make_unique_for_overwrite<uint4[]>((kMostOptional + kGuard) / sizeof(uint4)));
    }
    std::fill_n(reinterpret_cast<std::byte*>(block_memories[resident].get()), grid.shared_bytes + kGuard, kPoison);
    for (const unsigned thread : order_of(grid.threads, block)) order.push_back(resident * grid.threads + thread);
    places.push_back({.block = {block % grid.blocks, block / grid.blocks, 0},
                      .block_size = dim3(grid.threads),
                      .grid_size = dim3(grid.blocks, grid.parts),
                      .resident = resident});
  }
  machine.run_blocks(places, grid.threads, order);
  for (const Place& place : places) {
    const auto* const guard =
        reinterpret_cast<const std::byte*>(block_memories[place.resident].get()) + grid.shared_bytes;
    if (std::any_of(guard, guard + kGuard, [](std::byte b) { return b != kPoison; })) {
      throw KernelFault(fmt::format("kernel {}, block ({}, {}): wrote past its {} bytes of shared memory", name,
                                    place.block.x, place.block.y, grid.shared_bytes));
    }
  }
}

void run_all_blocks(const char* name, const Grid& grid, const std::function<void()>& thread) {
  using namespace lockstep::test::cuda_on_cpu;
  ++grid_count;
  Machine machine(name, thread);
  const std::vector<unsigned> order = order_of(std::size_t{grid.blocks} * grid.parts, 0);
  if (grid.residence == Residence::all_blocks) return run_blocks(name, grid, machine, order);
  for (const unsigned block : order) run_blocks(name, grid, machine, {block});
}

}  // namespace

uint4* block_memory() { return test::cuda_on_cpu::block_memories[test::cuda_on_cpu::place().resident].get(); }

cudaError_t run_grid(const char* name, const Grid& grid, cudaStream_t stream, std::span<const KernelArgument> arguments,
                     const std::function<void()>& thread) {
  // What a GPU refuses.
  const bool stays = grid.residence == Residence::all_blocks;
  if (grid.blocks == 0 || grid.parts == 0 || grid.threads == 0 || grid.threads > 1024 || grid.parts > 65535 ||
      grid.blocks > 0x7fffffffu || grid.shared_bytes > (stays ? kMostOptional : kMostShared)) {
    return cudaErrorInvalidConfiguration;
  }
  const std::size_t resident = stays ? std::size_t{grid.blocks} * grid.parts : 0;
  if (resident > test::cuda_on_cpu::kMostResidentBlocks || (stays && grid.threads % kWarp != 0)) {
    return cudaErrorCooperativeLaunchTooLarge;
  }
  if (const auto& receiver = test::cuda_on_cpu::grid_receiver()) {
    return receiver(
        {name, stream, static_cast<unsigned>(resident), arguments, [=] { run_all_blocks(name, grid, thread); }});
  }
  run_all_blocks(name, grid, thread);
  return cudaSuccess;
}

}  // namespace lockstep::model::cuda
