#include "comm/communicator.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include <fmt/format.h>

#include "comm/host/summation.hpp"

namespace lockstep::comm {

std::string_view name_of(Transport transport) noexcept {
  switch (transport) {
    case Transport::automatic:
      return "automatic";
    case Transport::serial:
      return "serial";
    case Transport::shared_memory:
      return "shared memory";
    case Transport::two_level:
      return "two-level";
    case Transport::ring:
      return "ring";
    case Transport::mpi:
      return "mpi";
    case Transport::nccl:
      return "nccl";
  }
  return "unknown";
}
namespace {

/// Adds the time until it goes out of scope, also after an exception.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds), start_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() { seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point start_;
};

void require_equal_counts(std::span<const float> from, std::span<const float> to) {
  if (from.size() == to.size()) return;
  throw std::invalid_argument(fmt::format("{} elements to {}", from.size(), to.size()));
}

}  // namespace

Slice slice_of(std::size_t count, int rank, int size) noexcept {
  constexpr std::size_t kLine = 16;
  const auto ranks = static_cast<std::size_t>(size), r = static_cast<std::size_t>(rank);
  const std::size_t share = count / ranks / kLine * kLine;
  return {.offset = r * share, .count = rank + 1 == size ? count - r * share : share};
}

template <class Work>
void Communicator::collective(Work work) {
  if (long_operations_ > 0) {
    throw std::invalid_argument(
        "a collective call inside a long operation: the peers take this rank for busy elsewhere");
  }
  const Stopwatch stopwatch(seconds_);
  work();
}

Slice Communicator::own_bytes(std::size_t bytes, std::size_t element_bytes, int rank) const noexcept {
  const Slice elements = own_slice(bytes / element_bytes, rank);
  return {.offset = elements.offset * element_bytes, .count = elements.count * element_bytes};
}

std::unique_ptr<std::pmr::memory_resource> Communicator::reduction_memory(std::size_t bytes, MemoryUse use) {
  std::unique_ptr<std::pmr::memory_resource> memory;
  collective([&] {
    do_join();
    memory = do_reduction_memory(bytes, use);
  });
  return memory;
}

std::vector<std::byte*> Communicator::mapped(std::span<std::byte> data) const {
  std::vector<std::byte*> everywhere(static_cast<std::size_t>(size_), nullptr);
  do_map(data, everywhere);
  everywhere[static_cast<std::size_t>(rank_)] = data.data();
  return everywhere;
}

void Communicator::all_reduce(std::span<float> data) {
  collective([&] { do_all_reduce(data); });
}

void Communicator::all_reduce(std::span<double> data) {
  collective([&] { do_all_reduce(data); });
}

void Communicator::urgent_all_reduce(std::span<double> data) {
  collective([&] { do_urgent_all_reduce(data); });
}

void Communicator::do_urgent_all_reduce(std::span<double> data) {
  do_all_reduce(data);
  do_join();
}

void Communicator::all_reduce(const TreeTerms& terms) {
  if (terms.tree == nullptr || terms.tree->ranks() != size_) {
    throw std::invalid_argument(fmt::format("a sum by a tree that is not of {} ranks", size_));
  }
  collective([&] { do_all_reduce(terms); });
}

void Communicator::do_all_reduce(const TreeTerms&) {
  if (size_ > 1) throw std::logic_error("these ranks do not sum by a tree");
}

void Communicator::copy_here(std::span<const float> from, std::span<float> to) {
  require_equal_counts(from, to);
  do_copy_here(from, to);
}

void Communicator::add_here(std::span<const float> from, std::span<float> to) {
  require_equal_counts(from, to);
  do_add_here(from, to);
}

void Communicator::do_copy_here(std::span<const float> from, std::span<float> to) {
  std::ranges::copy(from, to.begin());
}
void Communicator::do_add_here(std::span<const float> from, std::span<float> to) {
  add_to(to.data(), from.data(), to.size());
}

void Communicator::reduce_scatter(std::span<float> data) {
  collective([&] { do_reduce_scatter(data); });
}

void Communicator::all_gather(std::span<float> data) {
  collective([&] { do_all_gather(std::as_writable_bytes(data), sizeof(float)); });
}

void Communicator::all_gather(std::span<std::byte> data) {
  collective([&] { do_all_gather(data, 1); });
}

void Communicator::broadcast(std::span<std::byte> data, int root) {
  if (root < 0 || root >= size_) {
    throw std::invalid_argument(fmt::format("broadcast from rank {} in a world of {}", root, size_));
  }
  collective([&] { do_broadcast(data, root); });
}

void Communicator::barrier() {
  collective([&] { do_barrier(); });
}

void Communicator::join() {
  collective([&] { do_join(); });
}

void Communicator::wait(const char* what, std::int64_t step) {
  if (step_ended_) throw std::logic_error("a wait for everything while a step is left to wait for");
  collective([&] { do_wait(what, step); });
}

void Communicator::end_step() {
  if (step_ended_) throw std::logic_error("a step ends while another one is left to wait for");
  collective([&] { do_end_step(); });
  step_ended_ = true;
}

void Communicator::wait_for_step(const char* what, std::int64_t step) {
  if (!step_ended_) throw std::logic_error("a wait for a step that has not ended");
  step_ended_ = false;
  collective([&] { do_wait_for_step(what, step); });
}

double Communicator::set_deadline(double seconds) {
  if (!(seconds > 0)) throw std::invalid_argument(fmt::format("a deadline of {} s: it must be positive", seconds));
  return do_set_deadline(seconds);
}

bool Communicator::check_peers() {
  if (long_operations_ > 0) throw std::invalid_argument("a look at the peers inside a long operation");
  return do_check_peers();
}

void Communicator::begin_long_operation(const char* what) {
  if (long_operations_ == 0) do_begin_long_operation(what);
  ++long_operations_;
}

void Communicator::end_long_operation() noexcept {
  if (--long_operations_ == 0) do_end_long_operation();
}

}  // namespace lockstep::comm
