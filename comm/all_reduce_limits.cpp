#include "comm/all_reduce_limits.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace lockstep::comm {
namespace {

/// Largest sum in one message, even if the ring takes all sums.
constexpr std::size_t kOneMessage = 512;
constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

std::string bytes_text(std::size_t bytes) {
  constexpr std::size_t kKi = 1024, kMi = kKi * kKi;
  if (bytes >= kMi && bytes % kMi == 0) return fmt::format("{} MiB", bytes / kMi);
  if (bytes >= kKi && bytes % kKi == 0) return fmt::format("{} KiB", bytes / kKi);
  return fmt::format("{} bytes", bytes);
}

}  // namespace

std::string_view name_of(AllReduceSchedule schedule) noexcept {
  switch (schedule) {
    case AllReduceSchedule::doubling:
      return "doubling";
    case AllReduceSchedule::halving:
      return "halving";
    case AllReduceSchedule::ring:
      break;
  }
  return "ring";
}

AllReduceLimits AllReduceLimits::of_network(int positions, std::size_t in_flight) noexcept {
  // Halving adds after a message has arrived, the ring during transfers: this costs an eighth of the bytes' time.
  constexpr std::size_t kLoss = 8;
  const auto rounds = static_cast<int>(std::bit_width(static_cast<unsigned>(std::max(positions, 1) - 1)));
  const auto saved = static_cast<std::size_t>(std::max(positions - 1 - rounds, 0));  // pairs of messages
  return {.doubling = in_flight, .halving = std::max(in_flight, saved * kLoss * in_flight)};
}

AllReduceLimits AllReduceLimits::all_by(AllReduceSchedule schedule) noexcept {
  switch (schedule) {
    case AllReduceSchedule::doubling:
      return {.doubling = kAll, .halving = kAll};
    case AllReduceSchedule::halving:
      return {.doubling = kOneMessage, .halving = kAll};
    case AllReduceSchedule::ring:
      break;
  }
  return {.doubling = kOneMessage, .halving = kOneMessage};
}

AllReduceLimits best_limits(std::span<const ScheduleSeconds> sizes) {
  AllReduceLimits best;
  double least = std::numeric_limits<double>::infinity();
  // Tries all limits: the first `two` sizes by doubling, those up to `half` by halving.
  for (std::size_t two = 0; two <= sizes.size(); ++two) {
    for (std::size_t half = two; half <= sizes.size(); ++half) {
      const AllReduceLimits limits{.doubling = two > 0 ? sizes[two - 1].bytes : 0,
                                   .halving = half > 0 ? sizes[half - 1].bytes : 0};
      double sum = 0;
      for (const ScheduleSeconds& size : sizes) sum += std::log(size.by(limits.schedule(size.bytes)));
      if (sum < least) least = sum, best = limits;
    }
  }
  return best;
}

std::string to_text(const AllReduceLimits& limits) {
  if (limits.doubling == kAll) return "by doubling";
  std::string text = fmt::format("by doubling up to {}", bytes_text(limits.doubling));
  if (limits.halving == kAll) return text + ", then by halving";
  if (limits.halving > limits.doubling) text += fmt::format(", by halving up to {}", bytes_text(limits.halving));
  return text + ", then by the ring";
}

}  // namespace lockstep::comm
