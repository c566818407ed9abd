// Centres: with few features random centres may nearly coincide. Each centre is therefore the one of several candidates
// that is farthest from the earlier ones. Then all are scaled until the two nearest are kSeparation standard deviations
// apart (halfway between them a linear border errs on 3 of 100,000 samples).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <stdexcept>

#include <fmt/format.h>

#include "io/shards/counter_random.hpp"
#include "io/shards/sample_source.hpp"

namespace lockstep::io {
namespace {

constexpr double kSeparation = 8;

/// Makes two independent standard normal numbers from two words of a block (Box, Muller 1958).
std::pair<double, double> normal_pair(std::uint32_t first, std::uint32_t second) {
  const double radius = std::sqrt(-2 * std::log(1 - unit_interval(first)));
  const double angle = 2 * std::numbers::pi * unit_interval(second);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

void add_normals(std::uint64_t seed, RandomPurpose purpose, std::uint64_t major, double scale, std::span<float> out) {
  for (std::size_t at = 0; at < out.size(); at += 4) {
    const RandomBlock words = random_block(seed, purpose, major, static_cast<std::uint32_t>(at / 4));
    const auto [a, b] = normal_pair(words[0], words[1]);
    const auto [c, d] = normal_pair(words[2], words[3]);
    const double values[] = {a, b, c, d};
    for (std::size_t i = 0; i < std::min<std::size_t>(4, out.size() - at); ++i) {
      out[at + i] += static_cast<float>(scale * values[i]);
    }
  }
}

double squared_distance(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t j = 0; j < a.size(); ++j) sum += (a[j] - b[j]) * static_cast<double>(a[j] - b[j]);
  return sum;
}

class SyntheticSource final : public SampleSource {
 public:
  explicit SyntheticSource(const SyntheticOptions& options) : options_(options) {
    if (classification()) place_centres();
  }

  std::vector<Field> fields() const override {
    return {{"x", FileType::float32, {options_.features}},
            {"y", classification() ? FileType::int32 : FileType::float32, {}}};
  }
  std::int64_t count() const override { return options_.samples; }
  std::string description() const override {
    return fmt::format("synthetic {} seed {}", classification() ? "classification" : "regression", options_.seed);
  }
  bool labels_are_classes() const override { return classification(); }
  void skip(std::int64_t samples) override { done_ += samples; }

  void read(std::int64_t samples, std::span<const std::span<std::byte>> buffers) override {
    const std::size_t row = static_cast<std::size_t>(options_.features) * sizeof(float);
    if (samples < 0 || done_ + samples > options_.samples || buffers.size() != 2 ||
        buffers[0].size() != static_cast<std::size_t>(samples) * row ||
        buffers[1].size() != static_cast<std::size_t>(samples) * 4) {
      throw std::invalid_argument("more samples or other fields asked for than the source has");
    }
    std::vector<float> x(static_cast<std::size_t>(options_.features));
    for (std::size_t i = 0; i < static_cast<std::size_t>(samples); ++i, ++done_) {
      const auto index = static_cast<std::uint64_t>(options_.first + done_);
      if (classification()) {
        const std::int32_t label = make_class_sample(index, x);
        std::memcpy(buffers[1].data() + i * 4, &label, 4);
      } else {
        const float target = make_regression_sample(index, x);
        std::memcpy(buffers[1].data() + i * 4, &target, 4);
      }
      std::memcpy(buffers[0].data() + i * row, x.data(), row);
    }
  }

 private:
  bool classification() const noexcept { return options_.task == SyntheticOptions::Task::classification; }
  std::span<float> centre(std::int64_t label) {
    const auto features = static_cast<std::size_t>(options_.features);
    return std::span(centres_).subspan(static_cast<std::size_t>(label) * features, features);
  }

  double distance_to_centres_before(std::int64_t label, std::span<const float> point) {
    double nearest = std::numeric_limits<double>::infinity();
    for (std::int64_t other = 0; other < label; ++other) {
      nearest = std::min(nearest, squared_distance(point, centre(other)));
    }
    return nearest;
  }

  void place_centres() {
    const std::uint64_t candidates = options_.features < 16 ? 32 : 1;
    centres_.assign(static_cast<std::size_t>(options_.classes * options_.features), 0.0F);
    std::vector<float> candidate(static_cast<std::size_t>(options_.features));
    double nearest = std::numeric_limits<double>::infinity();
    for (std::int64_t label = 0; label < options_.classes; ++label) {
      double best = -1;
      for (std::uint64_t draw = 0; draw < candidates; ++draw) {
        std::fill(candidate.begin(), candidate.end(), 0.0F);
        add_normals(options_.seed, RandomPurpose::centre, static_cast<std::uint64_t>(label) * candidates + draw, 1,
                    candidate);
        const double distance = distance_to_centres_before(label, candidate);
        if (distance > best) {
          best = distance;
          std::copy(candidate.begin(), candidate.end(), centre(label).begin());
        }
      }
      nearest = std::min(nearest, best);
    }
    const double scale = std::isfinite(nearest) ? kSeparation / std::sqrt(nearest) : 1;
    double squares = 0;
    for (const float value : centres_) squares += static_cast<double>(value) * value;
    // The variance of features is about one for any scale.
    spread_ = 1 / std::sqrt(1 + scale * scale * squares / static_cast<double>(centres_.size()));
    for (float& value : centres_) value = static_cast<float>(value * scale * spread_);
  }

  std::int32_t make_class_sample(std::uint64_t index, std::span<float> x) {
    const RandomBlock words = random_block(options_.seed, RandomPurpose::class_of_sample, index, 0);
    const auto label =
        static_cast<std::int32_t>((std::uint64_t{words[0]} * static_cast<std::uint64_t>(options_.classes)) >> 32);
    const std::span<const float> middle = centre(label);
    std::copy(middle.begin(), middle.end(), x.begin());
    add_normals(options_.seed, RandomPurpose::features, index, spread_, x);
    return label;
  }

  float make_regression_sample(std::uint64_t index, std::span<float> x) const {
    double sum = 0;
    for (std::size_t j = 0; j < x.size(); ++j) {
      const RandomBlock words =
          random_block(options_.seed, RandomPurpose::features, index, static_cast<std::uint32_t>(j / 4));
      x[j] = static_cast<float>(2 * unit_interval(words[j % 4]) - 1);
      sum += 2 * static_cast<double>(x[j]) + 1;
    }
    const RandomBlock words = random_block(options_.seed, RandomPurpose::noise, index, 0);
    return static_cast<float>(sum / static_cast<double>(x.size()) +
                              options_.noise * normal_pair(words[0], words[1]).first);
  }

  SyntheticOptions options_;
  std::vector<float> centres_;  ///< classes x features, scaled
  double spread_ = 1;           ///< standard deviation around a centre
  std::int64_t done_ = 0;
};

}  // namespace

std::unique_ptr<SampleSource> make_synthetic(const SyntheticOptions& options) {
  const bool classification = options.task == SyntheticOptions::Task::classification;
  if (options.samples < 1 || options.features < 1 || (classification && options.classes < 1) || options.first < 0 ||
      !(options.noise >= 0)) {
    throw std::invalid_argument("synthetic data needs at least one sample, feature and class, and noise >= 0");
  }
  return std::make_unique<SyntheticSource>(options);
}

}  // namespace lockstep::io
