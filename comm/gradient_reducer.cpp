#include "comm/gradient_reducer.hpp"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

namespace lockstep::comm {

namespace {

constexpr std::size_t kKibi = 1024 / sizeof(float), kMebi = 1024 * kKibi;

std::string size_text(std::size_t elements) {
  return elements % kMebi == 0 ? fmt::format("{} MiB", elements / kMebi)
                               : fmt::format("{:.6g} KiB", static_cast<double>(elements * sizeof(float)) / 1024);
}

}  // namespace

BucketRule::BucketRule(Transport transport, int ranks, int ring_length, std::size_t bucket_elements)
    : first_(4 * kMebi), usual_(4 * kMebi), asked_for_(bucket_elements > 0) {
  if (asked_for_) {
    first_ = usual_ = bucket_elements;
  } else if (transport == Transport::nccl) {
    first_ = kMebi, usual_ = 16 * kMebi;
  } else if (transport == Transport::ring || transport == Transport::mpi || transport == Transport::two_level) {
    const auto p = static_cast<std::size_t>(ranks), length = static_cast<std::size_t>(ring_length);
    usual_ = std::clamp(std::max(length * 128, p * 16) * kKibi, 4 * kMebi, 8 * kMebi);
    first_ = std::clamp(std::max(length * 32, p * 16) * kKibi, 256 * kKibi, usual_);
    shrinks_ = true;
  }
}

std::string BucketRule::text() const {
  if (asked_for_) return fmt::format("up to {}, as asked for", size_text(usual_));
  return first_ == usual_ ? fmt::format("up to {}", size_text(usual_))
                          : fmt::format("the first up to {}, then up to {}", size_text(first_), size_text(usual_));
}

std::vector<Slice> BucketRule::cut(std::span<const std::size_t> slice_ends) const {
  const std::size_t all = slice_ends.empty() ? 0 : slice_ends.back();
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
    const std::size_t limit = schedule.empty() ? first_
                              : shrinks_       ? std::clamp(std::min(all / 32, (all - begin) / 2), first_, usual_)
                                               : usual_;
    // A slice becomes final as a whole. One that is larger than a bucket becomes its own bucket, because splitting it
    // gains nothing.
    if (slice_end - begin > limit) close();
    end = slice_end;
  }
  close();
  return schedule;
}

GradientReducer::GradientReducer(Communicator& communicator, std::span<float> gradients, std::vector<Slice> schedule,
                                 SumsFor sums_for, const OrderedTerms& terms)
    : communicator_(communicator),
      gradients_(gradients),
      schedule_(std::move(schedule)),
      sums_for_(sums_for),
      next_(schedule_.size()),
      terms_(terms) {
  if (sums_terms()) {
    steps_ = terms_.tree->steps(communicator.rank());
    if (sums_for_ == SumsFor::owners ||
        terms_.kept.size() < static_cast<std::size_t>(terms_.tree->most_kept()) * gradients_.size()) {
      throw std::invalid_argument("ordered sums are for everybody, and keep arrays like the gradients");
    }
  }
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

void GradientReducer::begin_term(std::int64_t index) {
  term_ = static_cast<std::size_t>(index);
  folded_ = 0;
}

void GradientReducer::fold(std::size_t end) {
  const SummationTree::Step& step = steps_[term_];
  const std::size_t count = end - folded_;
  const std::span<float> own = gradients_.subspan(folded_, count);
  const auto kept = [&](int place) {
    return terms_.kept.subspan(static_cast<std::size_t>(place) * gradients_.size() + folded_, count);
  };
  for (int place = step.place + step.additions - 1; place >= step.place; --place) {
    communicator_.add_here(kept(place), own);
  }
  if (term_ + 1 < steps_.size()) communicator_.copy_here(own, kept(step.place));
  folded_ = end;
}

void GradientReducer::ready_up_to(std::size_t end) {
  if (end > gradients_.size()) {
    throw std::invalid_argument(fmt::format("{} gradients are ready of {}", end, gradients_.size()));
  }
  if (sums_terms() && end > folded_) fold(end);
  if (sums_terms() && term_ + 1 < steps_.size()) return;
  for (; next_ < schedule_.size() && schedule_[next_].offset + schedule_[next_].count <= end; ++next_) {
    const Slice& bucket = schedule_[next_];
    const std::span<float> gradients = gradients_.subspan(bucket.offset, bucket.count);
    if (sums_terms()) {
      communicator_.all_reduce(TreeTerms{.tree = terms_.tree,
                                         .data = gradients,
                                         .earlier = terms_.kept.data() + bucket.offset,
                                         .stride = gradients_.size()});
    } else if (sums_for_ == SumsFor::owners) {
      communicator_.reduce_scatter(gradients);
    } else {
      communicator_.all_reduce(gradients);
    }
  }
}

void GradientReducer::finish_step() {
  ready_up_to(gradients_.size());
  communicator_.join();
}

void GradientReducer::gather(std::span<float> arena, std::size_t bucket) {
  if (arena.size() != gradients_.size()) {
    throw std::invalid_argument(
        fmt::format("an array of {} elements in buckets of {}", arena.size(), gradients_.size()));
  }
  const Slice& slice = schedule_.at(bucket);
  communicator_.all_gather(arena.subspan(slice.offset, slice.count));
}

void GradientReducer::finish_gathering() { communicator_.join(); }

}  // namespace lockstep::comm
