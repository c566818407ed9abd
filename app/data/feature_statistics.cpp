#include "app/data/feature_statistics.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>

#include "app/data/sections.hpp"
#include "comm/communicator.hpp"
#include "comm/consensus.hpp"

namespace lockstep::app {

namespace {

constexpr std::uint64_t kMaxRead = std::uint64_t{4} << 30;
constexpr std::size_t kBlock = std::size_t{1} << 20;

/// Sums over one feature in one section. Numbers are summed relative to a pivot, the same on every rank, which avoids
/// cancellation between squares of large numbers.
struct Sums {
  double count = 0, sum = 0, squares = 0, least = 0, greatest = 0;
  void add(double number, double pivot) {
    least = count == 0 ? number : std::min(least, number);
    greatest = count == 0 ? number : std::max(greatest, number);
    count += 1;
    sum += number - pivot;
    squares += (number - pivot) * (number - pivot);
  }
  void add(const Sums& other) {
    if (other.count == 0) return;
    least = count == 0 ? other.least : std::min(least, other.least);
    greatest = count == 0 ? other.greatest : std::max(greatest, other.greatest);
    count += other.count;
    sum += other.sum;
    squares += other.squares;
  }
  io::FeatureSpread spread(double pivot) const {
    if (count == 0) return {.mean = pivot};  // all series are empty
    const double mean = sum / count;
    return {.mean = pivot + mean, .deviation = std::sqrt(std::max(0.0, squares / count - mean * mean))};
  }
};
constexpr std::size_t kSumsNumbers = sizeof(Sums) / sizeof(double);

/// Reads samples on one rank. Features of x come first, then the targets. The pivots are the numbers of sample 0.
class Reading {
 public:
  Reading(const io::Dataset& data, std::span<const io::FeaturePart> x, std::span<const SeriesPadding> padding)
      : data_(data),
        x_parts_(parts_of(x, padding)),
        x_features_(features_of(x)),
        y_features_(data.info().labels_are_classes || data.info().y.name.empty()
                        ? 0
                        : static_cast<std::size_t>(data.info().target_count())),
        rows_(std::max<std::int64_t>(1, static_cast<std::int64_t>(kBlock / (data.x_bytes() + data.y_bytes() + 1)))) {
    read(0, 1);
    pivots_.resize(features());
    each([this](std::size_t feature, double number) { pivots_[feature] = number; });
  }

  std::size_t features() const noexcept { return x_features_ + y_features_; }
  std::size_t x_features() const noexcept { return x_features_; }
  const std::vector<double>& pivots() const noexcept { return pivots_; }

  /// Adds samples [first, end) to `sums`, but only one of every `stride` blocks.
  void add(std::int64_t first, std::int64_t end, std::int64_t stride, std::span<Sums> sums) {
    for (std::int64_t at = first; at < end; at += rows_ * stride) {
      read(at, std::min(rows_, end - at));
      each([&](std::size_t feature, double number) { sums[feature].add(number, pivots_[feature]); });
    }
  }

 private:
  /// A part of a sample; of a padded series, only the real steps count.
  struct Part : io::FeaturePart {
    const SeriesPadding* padding = nullptr;
    /// Returns how many of the part's numbers count.
    template <class Number>
    std::size_t count(std::span<const Number> sample) const {
      if (padding == nullptr) return static_cast<std::size_t>(elements);
      const auto length = static_cast<std::int64_t>(sample[static_cast<std::size_t>(padding->lengths)]);
      return static_cast<std::size_t>(elements / padding->steps * length);
    }
  };
  static std::vector<Part> parts_of(std::span<const io::FeaturePart> x, std::span<const SeriesPadding> padding) {
    std::vector<Part> parts;
    std::int64_t first = 0;
    for (const io::FeaturePart& part : x) {
      const auto padded = std::ranges::find(padding, first, &SeriesPadding::first);
      parts.push_back({part, padded == padding.end() ? nullptr : &*padded});
      first += part.elements;
    }
    return parts;
  }
  static std::size_t features_of(std::span<const io::FeaturePart> parts) {
    std::int64_t features = 0;
    for (const io::FeaturePart& part : parts) features += part.features;
    return static_cast<std::size_t>(features);
  }
  void read(std::int64_t first, std::int64_t count) {
    samples_.resize(static_cast<std::size_t>(count));
    std::iota(samples_.begin(), samples_.end(), first);
    x_.resize(samples_.size() * data_.x_bytes());
    y_.resize(samples_.size() * data_.y_bytes());
    data_.read(samples_, io::kNoEpoch, x_, y_);
  }

  template <class Number, class Use>
  static void each_of(std::span<const std::byte> bytes, std::span<const Part> parts, std::size_t before,
                      const Use& use) {
    const std::span<const Number> numbers(reinterpret_cast<const Number*>(bytes.data()), bytes.size() / sizeof(Number));
    std::size_t row = 0;
    for (const Part& part : parts) row += static_cast<std::size_t>(part.elements);
    for (std::size_t sample = 0; sample < numbers.size(); sample += row) {
      std::size_t first = before, begin = sample;
      for (const Part& part : parts) {
        const auto features = static_cast<std::size_t>(part.features);
        const std::size_t end = begin + part.count(numbers.subspan(sample, row));
        for (std::size_t at = begin; at < end; at += features) {
          for (std::size_t f = 0; f < features; ++f) use(first + f, static_cast<double>(numbers[at + f]));
        }
        first += features;
        begin += static_cast<std::size_t>(part.elements);
      }
    }
  }
  template <class Use>
  void each(const Use& use) const {
    switch (data_.x_type()) {
      case io::FileType::uint8:
        each_of<std::uint8_t>(x_, x_parts_, 0, use);
        break;
      case io::FileType::float64:
        each_of<double>(x_, x_parts_, 0, use);
        break;
      default:
        each_of<float>(x_, x_parts_, 0, use);
    }
    if (y_features_ == 0) return;
    const auto targets = static_cast<std::int64_t>(y_features_);
    const Part y_part[] = {{{.elements = targets, .features = targets}}};
    if (data_.y_type() == io::FileType::float64) {
      each_of<double>(y_, y_part, x_features_, use);
    } else {
      each_of<float>(y_, y_part, x_features_, use);
    }
  }

  const io::Dataset& data_;
  std::vector<Part> x_parts_;
  std::size_t x_features_, y_features_;
  std::int64_t rows_;  ///< rows per block
  std::vector<double> pivots_;
  std::vector<std::int64_t> samples_;
  std::vector<std::byte> x_, y_;
};

/// `sums` and `pivots`: one for each feature of x, then one for each target.
FeatureStatistics statistics_of(std::span<const Sums> sums, std::span<const double> pivots, std::size_t x_features) {
  FeatureStatistics statistics;
  Sums range;
  for (std::size_t feature = 0; feature < sums.size(); ++feature) {
    (feature < x_features ? statistics.x : statistics.y).push_back(sums[feature].spread(pivots[feature]));
    if (feature < x_features) range.add(sums[feature]);
  }
  statistics.least = range.least;
  statistics.greatest = range.greatest;
  return statistics;
}

}  // namespace

FeatureStatistics gather_statistics(comm::Communicator& communicator, const io::Dataset& data,
                                    std::span<const io::FeaturePart> x, std::span<const SeriesPadding> padding) {
  const std::int64_t samples = data.info().samples;
  const std::uint64_t bytes = static_cast<std::uint64_t>(samples) * data.stored_bytes();
  const auto stride = static_cast<std::int64_t>((bytes + kMaxRead - 1) / kMaxRead);
  std::vector<Sums> sums;
  std::vector<double> pivots;
  std::size_t x_features = 0;
  comm::all_succeed(communicator, [&] {
    const comm::LongOperation reading_data(communicator, "gathering statistics of the data");
    Reading reading(data, x, padding);
    const std::size_t features = reading.features();
    x_features = reading.x_features();
    pivots = reading.pivots();
    const std::int64_t sections = sections_of(samples, features);
    sums.resize(static_cast<std::size_t>(sections) * features);  // zeros for sections of other ranks
    // Each rank reads adjacent sections, so that it opens few files.
    const std::int64_t rank = communicator.rank(), size = communicator.size();
    for (std::int64_t k = sections * rank / size; k < sections * (rank + 1) / size; ++k) {
      reading.add(samples * k / sections, samples * (k + 1) / sections, std::max<std::int64_t>(1, stride),
                  std::span(sums).subspan(static_cast<std::size_t>(k) * features, features));
    }
  });
  static_assert(kSumsNumbers == 5);
  communicator.all_reduce(std::span<double>(reinterpret_cast<double*>(sums.data()), sums.size() * kSumsNumbers));
  communicator.wait("gathering statistics of the data");
  std::vector<Sums> totals(pivots.size());
  for (std::size_t at = 0; at < sums.size(); ++at) totals[at % totals.size()].add(sums[at]);
  return statistics_of(totals, pivots, x_features);
}

FeatureStatistics sample_statistics(const io::Dataset& data, std::span<const io::FeaturePart> x) {
  constexpr std::int64_t kMaxSamples = 256;
  constexpr std::int64_t kMaxBytes = 16 << 20;
  const std::int64_t samples = data.info().samples;
  const auto fit = kMaxBytes / static_cast<std::int64_t>(std::max<std::size_t>(1, data.x_bytes()));
  const std::int64_t count = std::clamp<std::int64_t>(std::min(fit, samples), 1, kMaxSamples);
  Reading reading(data, x, {});
  std::vector<Sums> sums(reading.features());
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t sample = samples * i / count;
    reading.add(sample, sample + 1, 1, sums);
  }
  return statistics_of(sums, reading.pivots(), reading.x_features());
}

}  // namespace lockstep::app
