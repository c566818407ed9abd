/// \file
/// Moments for norms. Variances are E[x^2] - E[x]^2 of double sums. A variance that is negative because of rounding
/// becomes zero. A NaN stays a NaN.
#pragma once

#include <cmath>

#include "model/formulas/host_device.hpp"

namespace lockstep::model::formulas {

inline constexpr double kLayerNormEpsilon = 1e-5;

struct Moments {
  double mean, variance;
};

/// Returns the moments of `count` values, with the biased variance. Both are zero without values, so an empty batch
/// gives no NaN.
LOCKSTEP_HOST_DEVICE Moments moments_of(double sum, double squares, double count) {
  const double share = count > 0 ? 1 / count : 0;
  const double mean = sum * share;
  const double variance = squares * share - mean * mean;
  return {mean, variance < 0 ? 0 : variance};
}

/// Returns the unbiased variance for running statistics. The variance of a single value does not change.
LOCKSTEP_HOST_DEVICE double unbiased_variance(double variance, double count) {
  return count > 1 ? variance * (count / (count - 1)) : variance;
}

LOCKSTEP_HOST_DEVICE double inverse_deviation(double variance, double epsilon) { return 1 / sqrt(variance + epsilon); }

}  // namespace lockstep::model::formulas
