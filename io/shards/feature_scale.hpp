/// \file
/// Standardises numbers to mean 0 and deviation 1 for each feature: the columns of a table, the channels of an image,
/// the targets of a regression.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "io/files/hdf5_file.hpp"

namespace lockstep::io {

/// A range of a sample's numbers with features of its own, which alternate in it.
struct FeaturePart {
  std::int64_t elements = 0;  ///< numbers of a sample; a multiple of `features`
  std::int64_t features = 0;
  bool operator==(const FeaturePart&) const = default;
};

/// A scale of `mean.size()` features, which alternate: element i of a sample belongs to feature i % size. Empty:
/// numbers stay unchanged.
struct FeatureScale {
  std::vector<double> mean;       ///< means; for data delivered as float32, float32 numbers
  std::vector<double> deviation;  ///< > 0, one per feature; 1 if all numbers of a feature are equal
  /// The adjacent parts of a sample that consists of several fields; `mean` has the features of the first part, then
  /// those of the second, and so on. Empty: the sample is one part.
  std::vector<FeaturePart> parts = {};

  bool empty() const noexcept { return mean.empty(); }
  /// True if samples of `elements` numbers can have these features.
  bool fits(std::int64_t elements) const noexcept;
  /// number = (number - mean) / deviation, computed as (number - mean) * (1 / deviation) in float, on whole samples.
  void apply(std::span<float> numbers) const;
  /// As above, in double, narrowed afterwards: numbers that float32 cannot distinguish (Unix times) stay distinct.
  void apply(std::span<const double> numbers, std::span<float> out) const;
  /// The inverse: number = number * deviation + mean.
  void undo(std::span<float> numbers) const;
  /// True if rounding to float32 would move the numbers by a noticeable part of a deviation.
  bool needs_double() const noexcept;
  bool operator==(const FeatureScale&) const = default;
};

/// Mean and deviation of a feature; `deviation` is 0 if all its numbers are equal.
struct FeatureSpread {
  double mean = 0, deviation = 0;
};
/// Treats a deviation that comes from rounding alone as 0. `type`: type of the numbers, float32 or float64.
FeatureScale scale_of(std::span<const FeatureSpread> features, FileType type = FileType::float32);
/// True if a network learns badly from unscaled numbers: a mean further from 0 than 4, or a deviation outside [1/4, 4].
bool asks_for_scale(std::span<const FeatureSpread> features) noexcept;
/// True if a network reaches unscaled targets slowly, because predictions start near 0 and move with the learning rate:
/// a mean further from 0 than half a deviation, or a deviation outside [1/2, 2].
bool ask_for_scale_as_targets(std::span<const FeatureSpread> targets) noexcept;

}  // namespace lockstep::io
