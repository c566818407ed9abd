#include "io/datasets/balanced_dataset.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "io/shards/permutation.hpp"

namespace lockstep::io {
namespace {

/// The draws [begin, end) of a class, in passes over its samples.
class ClassDraws {
 public:
  /// The class is number `number` of `classes` and has `samples` samples; an epoch has `draws` draws.
  ClassDraws(std::int64_t draws, std::int64_t classes, std::int64_t number, std::int64_t samples, std::uint64_t seed,
             std::int64_t epoch)
      : samples_(samples) {
    const auto before = [&](std::int64_t draw) { return (draw + classes - 1 - number) / classes; };
    begin_ = before(epoch * draws);
    end_ = before((epoch + 1) * draws);
    first_pass_ = begin_ / samples;
    last_pass_ = std::max(begin_, end_ - 1) / samples;
    first_ = order(seed, number, first_pass_);
    last_ = order(seed, number, last_pass_);
  }

  /// Number of draws of the class's sample with this number in [begin, end).
  std::int64_t of(std::int64_t sample) const noexcept {
    const std::int64_t place = first_pass_ * samples_ + moved(first_, sample);
    const std::int64_t in_first = place >= begin_ && place < end_ ? 1 : 0;
    if (first_pass_ == last_pass_) return in_first;
    return in_first + last_pass_ - first_pass_ - 1 + (last_pass_ * samples_ + moved(last_, sample) < end_ ? 1 : 0);
  }

 private:
  Permutation order(std::uint64_t seed, std::int64_t number, std::int64_t pass) const {
    return {static_cast<std::uint64_t>(samples_),
            random_block(seed, RandomPurpose::class_draws, static_cast<std::uint64_t>(pass),
                         static_cast<std::uint32_t>(number))};
  }
  static std::int64_t moved(const Permutation& order, std::int64_t sample) noexcept {
    return static_cast<std::int64_t>(order(static_cast<std::uint64_t>(sample)));
  }

  std::int64_t samples_, begin_ = 0, end_ = 0, first_pass_ = 0, last_pass_ = 0;
  Permutation first_, last_;
};

}  // namespace

BalancedDataset::BalancedDataset(std::shared_ptr<Dataset> data, std::vector<std::int32_t> labels, std::uint64_t seed)
    : DatasetView(std::move(data)), labels_(std::move(labels)), seed_(seed) {
  if (std::ssize(labels_) != info().samples || info().samples > kMaxSamples) {
    throw std::invalid_argument(fmt::format("{} labels of {} samples", labels_.size(), info().samples));
  }
  counts_.resize(static_cast<std::size_t>(std::max<std::int64_t>(0, info().classes)));
  for (const std::int32_t label : labels_) {
    if (label < 0 || label >= info().classes) throw std::invalid_argument(fmt::format("no class {}", label));
    ++counts_[static_cast<std::size_t>(label)];
  }
  if (std::ranges::find(counts_, 0) != counts_.end()) throw std::invalid_argument("a class without samples");
}

std::vector<std::uint32_t> BalancedDataset::draws(std::int64_t epoch) const {
  const std::int64_t samples = info().samples;
  std::vector<ClassDraws> classes;
  classes.reserve(counts_.size());
  for (std::size_t number = 0; number < counts_.size(); ++number) {
    classes.emplace_back(samples, std::ssize(counts_), static_cast<std::int64_t>(number), counts_[number], seed_,
                         epoch);
  }
  std::vector<std::uint32_t> drawn;
  drawn.reserve(static_cast<std::size_t>(samples));
  std::vector<std::int64_t> seen(counts_.size());
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    const auto of_class = static_cast<std::size_t>(labels_[static_cast<std::size_t>(sample)]);
    drawn.insert(drawn.end(), static_cast<std::size_t>(classes[of_class].of(seen[of_class]++)),
                 static_cast<std::uint32_t>(sample));
  }
  return drawn;
}

BalancedDataset::Draws BalancedDataset::kept_draws(std::int64_t epoch) const {
  const std::lock_guard lock(mutex_);
  if (kept_epoch_ != epoch || !kept_) {
    kept_.reset();
    kept_ = std::make_shared<const std::vector<std::uint32_t>>(draws(epoch));
    kept_epoch_ = epoch;
  }
  return kept_;
}

void BalancedDataset::read(std::span<const std::int64_t> samples, std::int64_t epoch, std::span<std::byte> x,
                           std::span<std::byte> y) const {
  if (epoch == kNoEpoch) return data().read(samples, epoch, x, y);
  const Draws draws = kept_draws(epoch);
  std::vector<std::int64_t> drawn(samples.size());
  std::ranges::transform(samples, drawn.begin(), [&](std::int64_t index) -> std::int64_t {
    if (index < 0 || index >= std::ssize(*draws))
      throw std::invalid_argument(fmt::format("there is no draw {}", index));
    return (*draws)[static_cast<std::size_t>(index)];
  });
  data().read(drawn, epoch, x, y);
}

std::size_t BalancedDataset::cache_bytes() const noexcept {
  return data().cache_bytes() + labels_.size() * (sizeof(labels_[0]) + sizeof(std::uint32_t));
}

void BalancedDataset::will_need(std::int64_t first, std::int64_t count, std::int64_t epoch) const noexcept {
  if (count < 1) return;
  if (epoch == kNoEpoch) return data().will_need(first, count, epoch);
  try {
    const Draws draws = kept_draws(epoch);
    const std::int64_t begin = (*draws)[static_cast<std::size_t>(first)];
    const std::int64_t end =
        std::int64_t{(*draws)[static_cast<std::size_t>(std::min(first + count, std::ssize(*draws)) - 1)]} + 1;
    data().will_need(begin, end - begin, epoch);
  } catch (const std::bad_alloc&) {  // read() reports it
  }
}

}  // namespace lockstep::io
