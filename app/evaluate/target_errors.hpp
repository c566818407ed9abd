/// \file
/// Errors of predicted numbers.
#pragma once

#include <cstdint>

namespace lockstep::app {

/// Errors of one predicted number over samples. Adding in the same order gives the same bits.
struct TargetErrors {
  double samples = 0;
  double absolute = 0, squared = 0;  ///< sums of |prediction - target| and of its square
  double mean = 0, spread = 0;       ///< mean of the targets; sum of (target - mean)^2

  void add(double prediction, double target);
  /// Adds the errors of other samples (Chan et al. 1983).
  void add(const TargetErrors& other);

  double mean_absolute_error() const { return absolute / samples; }
  double root_mean_squared_error() const;
  /// 1 - squared / spread; 0 means as good as the mean of the targets. NaN if all targets are equal.
  double r_squared() const;
};

}  // namespace lockstep::app
