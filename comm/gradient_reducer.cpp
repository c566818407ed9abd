#include "comm/gradient_reducer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace lockstep::comm {

namespace {

constexpr std::size_t kKibi = 1024 / sizeof(float), kMebi = 1024 * kKibi;

struct BucketSizes {
  std::size_t first, usual;
};

BucketSizes bucket_sizes(std::string_view transport, int ranks) {
  if (transport == "nccl") return {kMebi, 16 * kMebi};
  if (transport != "ring" && transport != "two-level") return {4 * kMebi, 4 * kMebi};
  const auto p = static_cast<std::size_t>(ranks);
  const std::size_t usual = std::clamp(p * 128 * kKibi, 4 * kMebi, 64 * kMebi);
  return {std::clamp(p * 32 * kKibi, 256 * kKibi, usual), usual};
}

std::string size_text(std::size_t elements) {
  return elements % kMebi == 0 ? fmt::format("{} MiB", elements / kMebi)
                               : fmt::format("{:.6g} KiB", static_cast<double>(elements * sizeof(float)) / 1024);
}

}  // namespace

std::string bucket_rule(std::string_view transport, int ranks, std::size_t bucket_elements) {
  if (bucket_elements > 0) return fmt::format("up to {}, as asked for", size_text(bucket_elements));
  const BucketSizes sizes = bucket_sizes(transport, ranks);
  return sizes.first == sizes.usual
             ? fmt::format("up to {}", size_text(sizes.usual))
             : fmt::format("the first up to {}, then up to {}", size_text(sizes.first), size_text(sizes.usual));
}

std::vector<Slice> bucket_schedule(std::span<const std::size_t> slice_ends, std::string_view transport, int ranks,
                                   std::size_t bucket_elements) {
  const BucketSizes sizes = bucket_sizes(transport, ranks);
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
    const std::size_t limit = bucket_elements > 0 ? bucket_elements : schedule.empty() ? sizes.first : sizes.usual;
    // A slice becomes final at once: one that is larger than a bucket is a bucket of its own, splitting it gains
    // nothing.
    if (slice_end - begin > limit) close();
    end = slice_end;
  }
  close();
  return schedule;
}

GradientReducer::GradientReducer(Reduction& reduction, std::span<float> gradients, std::vector<Slice> schedule,
                                 GradientWire wire, SumsFor sums_for)
    : reduction_(reduction),
      gradients_(gradients),
      schedule_(std::move(schedule)),
      wire_(std::move(wire)),
      sums_for_(sums_for),
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
  if (wire_.device && sums_for_ == SumsFor::owners) {
    throw std::invalid_argument("gradients that travel as bfloat16 between GPUs go to everybody");
  }
  if (wire_.device && wire_.device->buffer.size() != gradients_.size()) {
    throw std::invalid_argument(
        fmt::format("a wire buffer of {} elements for {} gradients", wire_.device->buffer.size(), gradients_.size()));
  }
  if (!wire_.host.residual.empty() && wire_.host.residual.size() != gradients_.size()) {
    throw std::invalid_argument(
        fmt::format("a residual of {} elements for {} gradients", wire_.host.residual.size(), gradients_.size()));
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
    if (wire_.device) {
      wire_.device->pack(bucket);
      reduction_.sum_bf16(wire_.device->buffer.subspan(bucket.offset, bucket.count));
    } else {
      Wire wire = wire_.host;
      if (!wire.residual.empty()) wire.residual = wire.residual.subspan(bucket.offset, bucket.count);
      const std::span<float> gradients = gradients_.subspan(bucket.offset, bucket.count);
      sums_for_ == SumsFor::owners ? reduction_.scatter_sum(gradients, wire) : reduction_.sum(gradients, wire);
    }
  }
}

void GradientReducer::finish_step() {
  ready_up_to(gradients_.size());
  reduction_.join();
  if (wire_.device) wire_.device->unpack();
}

void GradientReducer::gather(std::span<float> arena, std::size_t bucket) {
  if (arena.size() != gradients_.size()) {
    throw std::invalid_argument(
        fmt::format("an array of {} elements in buckets of {}", arena.size(), gradients_.size()));
  }
  const Slice& slice = schedule_.at(bucket);
  reduction_.gather(arena.subspan(slice.offset, slice.count));
}

void GradientReducer::finish_gathering() { reduction_.join(); }

}  // namespace lockstep::comm
