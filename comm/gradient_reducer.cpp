#include "comm/gradient_reducer.hpp"

#include <fmt/format.h>

#include <stdexcept>

namespace lockstep::comm {

std::vector<Slice> bucket_schedule(std::span<const std::size_t> slice_ends, std::string_view transport,
                                   std::size_t bucket_elements) {
  constexpr std::size_t kMebi = 1024 * 1024 / sizeof(float);
  const std::size_t usual = transport == "nccl" ? 16 * kMebi : 4 * kMebi;
  const std::size_t first = transport == "nccl" ? kMebi : transport == "ring" ? kMebi / 4 : usual;
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
    const std::size_t limit = bucket_elements > 0 ? bucket_elements : schedule.empty() ? first : usual;
    // A slice becomes final at once: one that is larger than a bucket is a bucket of its own, splitting it gains
    // nothing.
    if (slice_end - begin > limit) close();
    end = slice_end;
  }
  close();
  return schedule;
}

GradientReducer::GradientReducer(Reduction& reduction, std::span<float> gradients, std::vector<Slice> schedule,
                                 std::optional<Bf16Wire> wire)
    : reduction_(reduction),
      gradients_(gradients),
      schedule_(std::move(schedule)),
      wire_(std::move(wire)),
      next_(schedule_.size()) {
  std::size_t end = 0;
  for (const Slice& bucket : schedule_) {
    if (bucket.offset != end)
      throw std::invalid_argument(fmt::format("a bucket starts at {}, not at {}", bucket.offset, end));
    end += bucket.count;
  }
  if (end != gradients_.size()) {
    throw std::invalid_argument(fmt::format("the buckets cover {} of {} gradients", end, gradients_.size()));
  }
  if (wire_ && wire_->buffer.size() != gradients_.size()) {
    throw std::invalid_argument(
        fmt::format("a wire buffer of {} elements for {} gradients", wire_->buffer.size(), gradients_.size()));
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
  for (; next_ < schedule_.size() && schedule_[next_].offset + schedule_[next_].count <= end; ++next_) {
    const Slice& bucket = schedule_[next_];
    if (wire_) {
      wire_->pack(bucket);
      reduction_.sum_bf16(wire_->buffer.subspan(bucket.offset, bucket.count));
    } else {
      reduction_.sum(gradients_.subspan(bucket.offset, bucket.count));
    }
  }
}

void GradientReducer::finish_step() {
  ready_up_to(gradients_.size());
  reduction_.join();
  if (wire_) wire_->unpack();
}

}  // namespace lockstep::comm
