#include "io/datasets/split_dataset.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "io/shards/counter_random.hpp"

namespace lockstep::io {
namespace {

/// Must never change: another key would move samples of existing runs to the other part.
constexpr std::uint64_t kSplitKey = 20220511;

std::int64_t validation_samples(const DatasetInfo& info, double share) {
  if (info.samples < 2) throw FileError("a single sample cannot be split into training and validation");
  if (info.tokens) throw FileError("a text is not split by samples: `lockstep pack --validation` puts its end aside");
  return std::clamp<std::int64_t>(std::llround(static_cast<double>(info.samples) * share), 1, info.samples - 1);
}

}  // namespace

SampleSplit::SampleSplit(std::int64_t samples, std::int64_t validation) : samples_(samples), validation_(validation) {
  if (validation < 1 || validation >= samples) throw std::invalid_argument("a split needs samples in both parts");
}

/// First sample of a block, which has one validation sample.
std::int64_t SampleSplit::begin(std::int64_t block) const noexcept {
  __extension__ using Wide = __int128;
  return static_cast<std::int64_t>(static_cast<Wide>(samples_) * block / validation_);
}

std::int64_t SampleSplit::validation_sample(std::int64_t index) const noexcept {
  const std::int64_t first = begin(index), length = begin(index + 1) - first;
  const RandomBlock words =
      random_block(kSplitKey, RandomPurpose::validation_split, static_cast<std::uint64_t>(index), 0);
  return first + static_cast<std::int64_t>(words[0] % static_cast<std::uint64_t>(length));
}

std::int64_t SampleSplit::training_sample(std::int64_t index) const noexcept {
  // Block b holds begin(b + 1) - begin(b) - 1 training samples; begin(b) - b precede it.
  __extension__ using Wide = __int128;
  auto block = static_cast<std::int64_t>(static_cast<Wide>(index) * validation_ / training());
  block = std::min(block, validation_ - 1);
  while (block > 0 && begin(block) - block > index) --block;
  while (block + 1 < validation_ && begin(block + 1) - (block + 1) <= index) ++block;
  const std::int64_t candidate = begin(block) + (index - (begin(block) - block));
  return candidate >= validation_sample(block) ? candidate + 1 : candidate;
}

std::int64_t SampleSplit::validation_before(std::int64_t samples) const noexcept {
  if (samples >= samples_) return validation_;
  __extension__ using Wide = __int128;
  auto block = static_cast<std::int64_t>(static_cast<Wide>(samples) * validation_ / samples_);
  while (block > 0 && begin(block) > samples) --block;
  while (block + 1 < validation_ && begin(block + 1) <= samples) ++block;
  return block + (validation_sample(block) < samples ? 1 : 0);
}

SplitDataset::SplitDataset(std::shared_ptr<Dataset> data, double share, Part part)
    : DatasetView(std::move(data)),
      split_(this->data().info().samples, validation_samples(this->data().info(), share)),
      part_(part),
      info_(this->data().info()) {
  info_.samples = part == Part::training ? split_.training() : split_.validation();
  if (part == Part::training) warnings_ = this->data().warnings();
}

std::string SplitDataset::fingerprint() const {
  return fmt::format("{}, {} of them for {}", data().fingerprint(), info_.samples,
                     part_ == Part::training ? "training" : "validation");
}

/// Converts indices of samples in the part to indices among all samples.
std::vector<std::int64_t> SplitDataset::in_all(std::span<const std::int64_t> samples) const {
  std::vector<std::int64_t> all(samples.size());
  std::transform(samples.begin(), samples.end(), all.begin(), [this](std::int64_t index) {
    if (index < 0 || index >= info_.samples) {
      throw std::invalid_argument(fmt::format("there is no sample {}: the part has {}", index, info_.samples));
    }
    return sample(index);
  });
  return all;
}

void SplitDataset::read(std::span<const std::int64_t> samples, std::int64_t epoch, std::span<std::byte> x,
                        std::span<std::byte> y) const {
  data().read(in_all(samples), epoch, x, y);
}

void SplitDataset::read_weights(std::span<const std::int64_t> samples, std::span<float> weights) const {
  data().read_weights(in_all(samples), weights);
}

void SplitDataset::read_ids(std::span<const std::int64_t> samples, std::span<std::byte> ids) const {
  data().read_ids(in_all(samples), ids);
}

std::vector<std::int64_t> SplitDataset::shard_counts() const {
  std::vector<std::int64_t> counts;
  std::int64_t end = 0, before = 0;
  for (const std::int64_t count : data().shard_counts()) {
    end += count;
    const std::int64_t now = part_ == Part::training ? split_.training_before(end) : split_.validation_before(end);
    if (now > before) counts.push_back(now - before);
    before = now;
  }
  return counts;
}

void SplitDataset::will_need(std::int64_t first, std::int64_t count, std::int64_t epoch) const noexcept {
  if (count < 1) return;
  const std::int64_t begin = sample(first), end = sample(std::min(first + count, info_.samples) - 1) + 1;
  data().will_need(begin, end - begin, epoch);
}

std::uint64_t SplitDataset::verify(int part, int parts) const {
  return part_ == Part::training ? data().verify(part, parts) : 0;
}

void SplitDataset::check_unchanged(int part, int parts) {
  if (part_ == Part::training) data().check_unchanged(part, parts);
}

}  // namespace lockstep::io
