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

}  // namespace

void FeatureScale::apply(std::span<float> numbers) const {
  const std::size_t features = mean.size();
  if (features == 0) return;
  if (needs_double()) return apply(std::vector<double>(numbers.begin(), numbers.end()), numbers);
  std::vector<float> centre(mean.begin(), mean.end()), factor(features);
  std::transform(deviation.begin(), deviation.end(), factor.begin(),
                 [](double value) { return 1 / static_cast<float>(value); });
  for (std::size_t row = 0; row < numbers.size(); row += features) {
    for (std::size_t f = 0; f < features; ++f) numbers[row + f] = (numbers[row + f] - centre[f]) * factor[f];
  }
}

void FeatureScale::apply(std::span<const double> numbers, std::span<float> out) const {
  const std::size_t features = mean.size();
  if (features == 0) {
    std::transform(numbers.begin(), numbers.end(), out.begin(), [](double value) { return static_cast<float>(value); });
    return;
  }
  std::vector<double> factor(features);
  std::transform(deviation.begin(), deviation.end(), factor.begin(), [](double value) { return 1 / value; });
  for (std::size_t row = 0; row < numbers.size(); row += features) {
    for (std::size_t f = 0; f < features; ++f)
      out[row + f] = static_cast<float>((numbers[row + f] - mean[f]) * factor[f]);
  }
}

void FeatureScale::undo(std::span<float> numbers) const {
  const std::size_t features = mean.size();
  if (features == 0) return;
  if (needs_double()) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = static_cast<float>(numbers[i] * deviation[i % features] + mean[i % features]);
    }
    return;
  }
  const std::vector<float> centre(mean.begin(), mean.end()), width(deviation.begin(), deviation.end());
  for (std::size_t row = 0; row < numbers.size(); row += features) {
    for (std::size_t f = 0; f < features; ++f) numbers[row + f] = numbers[row + f] * width[f] + centre[f];
  }
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
