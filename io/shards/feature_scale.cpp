#include "io/shards/feature_scale.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep::io {
namespace {

/// As a share of the mean: what float32 numbers that should be equal differ by.
constexpr double kRounding = 1e-6;
constexpr double kFarFromZero = 4, kLeastDeviation = 0.25, kGreatestDeviation = 4;

bool is_constant(const FeatureSpread& feature) { return !(feature.deviation > kRounding * std::abs(feature.mean)); }

}  // namespace

void FeatureScale::apply(std::span<float> numbers) const {
  const std::size_t features = mean.size();
  if (features == 0) return;
  std::vector<float> factor(features);
  std::transform(deviation.begin(), deviation.end(), factor.begin(), [](float value) { return 1 / value; });
  for (std::size_t row = 0; row < numbers.size(); row += features) {
    for (std::size_t f = 0; f < features; ++f) numbers[row + f] = (numbers[row + f] - mean[f]) * factor[f];
  }
}

void FeatureScale::undo(std::span<float> numbers) const {
  const std::size_t features = mean.size();
  if (features == 0) return;
  for (std::size_t row = 0; row < numbers.size(); row += features) {
    for (std::size_t f = 0; f < features; ++f) numbers[row + f] = numbers[row + f] * deviation[f] + mean[f];
  }
}

FeatureScale scale_of(std::span<const FeatureSpread> features) {
  FeatureScale scale;
  for (const FeatureSpread& feature : features) {
    scale.mean.push_back(static_cast<float>(feature.mean));
    scale.deviation.push_back(is_constant(feature) ? 1 : static_cast<float>(feature.deviation));
  }
  return scale;
}

bool asks_for_scale(std::span<const FeatureSpread> features) noexcept {
  return std::any_of(features.begin(), features.end(), [](const FeatureSpread& feature) {
    return std::abs(feature.mean) > kFarFromZero ||
           (!is_constant(feature) && (feature.deviation < kLeastDeviation || feature.deviation > kGreatestDeviation));
  });
}

bool ask_for_scale_as_targets(std::span<const FeatureSpread> targets) noexcept {
  return std::any_of(targets.begin(), targets.end(), [](const FeatureSpread& target) {
    const double deviation = is_constant(target) ? 0 : target.deviation;
    return std::abs(target.mean) > deviation / 2 || (deviation > 0 && (deviation < 0.5 || deviation > 2));
  });
}

}  // namespace lockstep::io
