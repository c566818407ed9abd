#include "comm/gradient_reducer.hpp"

#include <fmt/format.h>

#include <chrono>
#include <stdexcept>

namespace lockstep::comm {

std::vector<Slice> bucket_schedule(std::span<const std::size_t> slice_ends, const Communicator& communicator,
                                   std::size_t bucket_elements) {
  constexpr std::size_t kFirstOnRing = 256 * 1024 / sizeof(float), kUsual = 4 * 1024 * 1024 / sizeof(float);
  const bool on_ring = communicator.transport_name() == "ring";
  std::vector<Slice> schedule;
  std::size_t begin = 0, end = 0;
  const auto close = [&] {
    if (end > begin) schedule.push_back({.offset = begin, .count = end - begin});
    begin = end;
  };
  for (const std::size_t slice_end : slice_ends) {
    if (slice_end < end) {
      throw std::invalid_argument(fmt::format("slices end at {} after {}: they must ascend", slice_end, end));
    }
    const std::size_t limit = bucket_elements > 0           ? bucket_elements
                              : on_ring && schedule.empty() ? kFirstOnRing
                                                            : kUsual;
    // A slice becomes final at once: one that is larger than a bucket is a bucket of its own, splitting it gains
    // nothing.
    if (slice_end - begin > limit) close();
    end = slice_end;
  }
  close();
  return schedule;
}

GradientReducer::GradientReducer(Communicator& communicator, std::span<float> gradients, std::vector<Slice> schedule)
    : communicator_(communicator), gradients_(gradients), schedule_(std::move(schedule)), next_(schedule_.size()) {
  std::size_t end = 0;
  for (const Slice& bucket : schedule_) {
    if (bucket.offset != end)
      throw std::invalid_argument(fmt::format("a bucket starts at {}, not at {}", bucket.offset, end));
    end += bucket.count;
  }
  if (end != gradients_.size()) {
    throw std::invalid_argument(fmt::format("the buckets cover {} of {} gradients", end, gradients_.size()));
  }
}

void GradientReducer::begin_step() {
  if (next_ != schedule_.size()) throw std::invalid_argument("a step begins before the one before it was finished");
  next_ = 0;
}

void GradientReducer::ready_up_to(std::size_t end) {
  if (end > gradients_.size()) {
    throw std::invalid_argument(fmt::format("{} gradients are ready of {}", end, gradients_.size()));
  }
  const auto start = std::chrono::steady_clock::now();
  for (; next_ < schedule_.size() && schedule_[next_].offset + schedule_[next_].count <= end; ++next_) {
    communicator_.all_reduce_sum(gradients_.subspan(schedule_[next_].offset, schedule_[next_].count));
  }
  exposed_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void GradientReducer::finish_step() { ready_up_to(gradients_.size()); }

}  // namespace lockstep::comm
