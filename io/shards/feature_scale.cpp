#include "io/shards/feature_scale.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep::io {
namespace {

/// Largest difference of numbers that should be equal, as a share of the mean.
constexpr double kFloatRounding = 1e-6, kDoubleRounding = 1e-14;
/// Largest acceptable change by rounding, as a share of a deviation.
constexpr double kNoticeable = 1e-3;
constexpr double kFarFromZero = 4, kMinDeviation = 0.25, kGreatestDeviation = 4;

bool is_constant(const FeatureSpread& feature, double rounding = kFloatRounding) {
  return !(feature.deviation > rounding * std::abs(feature.mean));
}

/// Calls work(first number, first feature, features) for each group of consecutive features, in whole samples.
template <class Work>
void each_turn(const FeatureScale& scale, std::size_t numbers, const Work& work) {
  const std::size_t features = scale.mean.size();
  if (scale.parts.empty()) {
    for (std::size_t row = 0; row < numbers; row += features) work(row, std::size_t{0}, features);
    return;
  }
  for (std::size_t at = 0; at < numbers;) {
    std::size_t first = 0;
    for (const FeaturePart& part : scale.parts) {
      const auto own = static_cast<std::size_t>(part.features);
      for (const std::size_t end = at + static_cast<std::size_t>(part.elements); at < end; at += own) {
        work(at, first, own);
      }
      first += own;
    }
  }
}

}  // namespace

bool FeatureScale::fits(std::int64_t elements) const noexcept {
  const auto features = static_cast<std::int64_t>(mean.size());
  if (features == 0) return true;
  if (deviation.size() != mean.size()) return false;
  if (parts.empty()) return elements % features == 0;
  std::int64_t all_elements = 0, all_features = 0;
  for (const FeaturePart& part : parts) {
    if (part.features < 1 || part.elements < 1 || part.elements % part.features != 0) return false;
    all_elements += part.elements;
    all_features += part.features;
  }
  return all_elements == elements && all_features == features;
}

void FeatureScale::apply(std::span<float> numbers) const {
  const std::size_t features = mean.size();
  if (features == 0) return;
  if (needs_double()) return apply(std::vector<double>(numbers.begin(), numbers.end()), numbers);
  std::vector<float> centre(mean.begin(), mean.end()), factor(features);
  std::transform(deviation.begin(), deviation.end(), factor.begin(),
                 [](double value) { return 1 / static_cast<float>(value); });
  each_turn(*this, numbers.size(), [&](std::size_t row, std::size_t first, std::size_t count) {
    for (std::size_t f = 0; f < count; ++f) {
      numbers[row + f] = (numbers[row + f] - centre[first + f]) * factor[first + f];
    }
  });
}

void FeatureScale::apply(std::span<const double> numbers, std::span<float> out) const {
  const std::size_t features = mean.size();
  if (features == 0) {
    std::transform(numbers.begin(), numbers.end(), out.begin(), [](double value) { return static_cast<float>(value); });
    return;
  }
  std::vector<double> factor(features);
  std::transform(deviation.begin(), deviation.end(), factor.begin(), [](double value) { return 1 / value; });
  each_turn(*this, numbers.size(), [&](std::size_t row, std::size_t first, std::size_t count) {
    for (std::size_t f = 0; f < count; ++f) {
      out[row + f] = static_cast<float>((numbers[row + f] - mean[first + f]) * factor[first + f]);
    }
  });
}

void FeatureScale::undo(std::span<float> numbers) const {
  if (mean.empty()) return;
  if (needs_double()) {
    each_turn(*this, numbers.size(), [&](std::size_t row, std::size_t first, std::size_t count) {
      for (std::size_t f = 0; f < count; ++f) {
        numbers[row + f] = static_cast<float>(numbers[row + f] * deviation[first + f] + mean[first + f]);
      }
    });
    return;
  }
  const std::vector<float> centre(mean.begin(), mean.end()), width(deviation.begin(), deviation.end());
  each_turn(*this, numbers.size(), [&](std::size_t row, std::size_t first, std::size_t count) {
    for (std::size_t f = 0; f < count; ++f) numbers[row + f] = numbers[row + f] * width[first + f] + centre[first + f];
  });
}

bool FeatureScale::needs_double() const noexcept {
  constexpr double kHalfBit = 0x1p-24;
  for (std::size_t f = 0; f < mean.size(); ++f) {
    const bool rounds = mean[f] != static_cast<double>(static_cast<float>(mean[f]));
    if (rounds && std::abs(mean[f]) * kHalfBit > kNoticeable * deviation[f]) return true;
  }
  return false;
}

FeatureScale scale_of(std::span<const FeatureSpread> features, FileType type) {
  const bool wide = type == FileType::float64;
  const auto stored = [wide](double value) { return wide ? value : static_cast<double>(static_cast<float>(value)); };
  FeatureScale scale;
  for (const FeatureSpread& feature : features) {
    scale.mean.push_back(stored(feature.mean));
    scale.deviation.push_back(
        is_constant(feature, wide ? kDoubleRounding : kFloatRounding) ? 1 : stored(feature.deviation));
  }
  return scale;
}

bool asks_for_scale(std::span<const FeatureSpread> features) noexcept {
  return std::any_of(features.begin(), features.end(), [](const FeatureSpread& feature) {
    return std::abs(feature.mean) > kFarFromZero ||
           (!is_constant(feature) && (feature.deviation < kMinDeviation || feature.deviation > kGreatestDeviation));
  });
}

bool ask_for_scale_as_targets(std::span<const FeatureSpread> targets) noexcept {
  return std::any_of(targets.begin(), targets.end(), [](const FeatureSpread& target) {
    const double deviation = is_constant(target) ? 0 : target.deviation;
    return std::abs(target.mean) > deviation / 2 || (deviation > 0 && (deviation < 0.5 || deviation > 2));
  });
}

}  // namespace lockstep::io
