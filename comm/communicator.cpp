#include "comm/communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>

namespace lockstep::comm {
namespace {

/// Adds the time until it goes out of scope, an exception's way out included.
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

}  // namespace

Slice shard_of(std::size_t count, int rank, int size) noexcept {
  constexpr std::size_t kLine = 16;
  const auto ranks = static_cast<std::size_t>(size), r = static_cast<std::size_t>(rank);
  const std::size_t share = count / ranks / kLine * kLine;
  return {.offset = r * share, .count = rank + 1 == size ? count - r * share : share};
}

template <typename Work>
void Communicator::collective(Work work) {
  if (long_operations_ > 0) {
    throw std::invalid_argument(
        "a collective call inside a long operation: the peers take this rank for busy elsewhere");
  }
  const Stopwatch stopwatch(seconds_);
  work();
}

std::unique_ptr<std::pmr::memory_resource> Communicator::reduction_memory(std::size_t bytes) {
  std::unique_ptr<std::pmr::memory_resource> memory;
  collective([&] { memory = do_reduction_memory(bytes); });
  return memory;
}

void Communicator::check_wire(std::span<const float> data, const Wire& wire) const {
  if (wire.residual.empty() || wire.residual.size() == data.size()) return;
  throw std::invalid_argument(
      fmt::format("a residual of {} elements for a sum of {}", wire.residual.size(), data.size()));
}

void Communicator::all_reduce_sum(std::span<float> data, const Wire& wire) {
  check_wire(data, wire);
  collective([&] { do_all_reduce_sum(data, wire); });
}

void Communicator::all_reduce_sum(std::span<double> data) {
  collective([&] { do_all_reduce_sum(data); });
}

void Communicator::reduce_scatter_sum(std::span<float> data, const Wire& wire) {
  check_wire(data, wire);
  collective([&] { do_reduce_scatter_sum(data, wire); });
}

void Communicator::all_gather(std::span<float> data) {
  collective([&] { do_all_gather(data); });
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

std::vector<std::string> Communicator::all_gather_text(std::string_view text) {
  // Texts travel as bit patterns in floats (all_gather moves them, it never computes with them), the longest one
  // dictating the number of rounds. A round is 16 KiB a rank: one long error text does not cost size() times its length
  // at once.
  constexpr std::size_t kRound = 4096, kLength = 16;  // whole lines, so that own_slice gives each rank as much
  const auto ranks = static_cast<std::size_t>(size_), own = static_cast<std::size_t>(rank_);

  std::vector<float> words(ranks * kLength);
  const std::uint64_t own_length = text.size();
  std::memcpy(&words[own * kLength], &own_length, sizeof(own_length));
  all_gather(words);
  std::vector<std::string> texts(ranks);
  std::size_t longest = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::uint64_t length = 0;
    std::memcpy(&length, &words[rank * kLength], sizeof(length));
    texts[rank].resize(length);
    longest = std::max<std::size_t>(longest, length);
  }

  for (std::size_t done = 0; done < longest;) {
    constexpr std::size_t kLine = kLength * sizeof(float);
    const std::size_t share = std::min(kRound, (longest - done + kLine - 1) / kLine * kLength);
    const auto part = [&](std::size_t length) {
      return length > done ? std::min(length - done, share * sizeof(float)) : 0;
    };
    words.assign(ranks * share, 0.0f);
    if (part(text.size()) > 0) std::memcpy(&words[own * share], text.data() + done, part(text.size()));
    all_gather(words);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::size_t bytes = part(texts[rank].size());
      if (bytes > 0) std::memcpy(texts[rank].data() + done, &words[rank * share], bytes);
    }
    done += share * sizeof(float);
  }
  return texts;
}

double Communicator::set_deadline(double seconds) {
  if (!(seconds > 0)) throw std::invalid_argument(fmt::format("a deadline of {} s: it must be positive", seconds));
  return do_set_deadline(seconds);
}

bool Communicator::look_at_peers() {
  if (long_operations_ > 0) throw std::invalid_argument("a look at the peers inside a long operation");
  return do_look_at_peers();
}

void Communicator::set_urgent(bool urgent) noexcept {
  {
    const std::lock_guard lock(urgency_mutex_);  // or a sleeper might miss it between its look and its sleep
    urgent_.store(urgent, std::memory_order_relaxed);
  }
  if (urgent) gets_urgent_.notify_all();
}

void Communicator::sleep_unless_urgent(std::chrono::microseconds time) const {
  std::unique_lock lock(urgency_mutex_);
  gets_urgent_.wait_for(lock, time, [this] { return urgent(); });
}

void Communicator::note_activity(const char* what, std::int64_t step) noexcept { do_note_activity(what, step); }

void Communicator::begin_long_operation(const char* what) {
  if (long_operations_ == 0) do_begin_long_operation(what);
  ++long_operations_;
}

void Communicator::end_long_operation() noexcept {
  if (--long_operations_ == 0) do_end_long_operation();
}

}  // namespace lockstep::comm
