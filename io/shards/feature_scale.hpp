/// \file
/// Numbers brought to mean 0 and deviation 1, feature by feature: the columns of a table, the channels of an image, the
/// targets of a regression.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "io/files/hdf5_file.hpp"

namespace lockstep::io {

/// Of `mean.size()` features, which take turns: element i of a sample belongs to feature i % size. Nothing in it: the
/// numbers stay as they are.
struct FeatureScale {
  std::vector<double> mean;       ///< of data that come as float32: float32 numbers
  std::vector<double> deviation;  ///< > 0, as many; 1 where all numbers of a feature are equal

  bool empty() const noexcept { return mean.empty(); }
  /// number = (number - mean) / deviation, as (number - mean) * (1 / deviation) in float. Whole samples.
  void apply(std::span<float> numbers) const;
  /// Likewise in double, and narrowed then: numbers that float32 does not tell apart (Unix times) stay apart.
  void apply(std::span<const double> numbers, std::span<float> out) const;
  /// The other way round: number = number * deviation + mean.
  void undo(std::span<float> numbers) const;
  /// float32 does not hold the numbers that it speaks of: rounding them moves them by a noticeable part of a deviation.
  bool needs_double() const noexcept;
  bool operator==(const FeatureScale&) const = default;
};

/// Where mean and deviation of a feature are, `deviation` 0 where its numbers are all equal.
struct FeatureSpread {
  double mean = 0, deviation = 0;
};
/// A deviation that comes from rounding alone counts as none: `type` is that of the numbers, float32 or float64.
FeatureScale scale_of(std::span<const FeatureSpread> features, FileType type = FileType::float32);
/// Whether a network learns badly from the numbers as they are: a mean further from 0 than 4, or a deviation outside
/// [1/4, 4].
bool asks_for_scale(std::span<const FeatureSpread> features) noexcept;
/// Whether a network is slow to reach the numbers that it predicts, which begin about 0 and move with its learning
/// rate: a mean further from 0 than half a deviation, or a deviation outside [1/2, 2].
bool ask_for_scale_as_targets(std::span<const FeatureSpread> targets) noexcept;

}  // namespace lockstep::io
