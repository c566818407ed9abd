/// \file
/// Conditions of an update, and the clipping of gradients by their norm.
#pragma once

#include <cmath>

#include "model/formulas/host_device.hpp"

namespace lockstep::model::formulas {

/// True if an update is allowed: every rank has a finite loss, and the gradients are finite.
LOCKSTEP_HOST_DEVICE bool may_update(double non_finite, double gradient_squares) {
  return non_finite == 0 && gradient_squares - gradient_squares == 0;  // x - x is NaN for infinity and NaN
}

/// Returns the factor that limits the gradient's norm to clip_norm (0: no limit), given its sum of squares (Pascanu et
/// al. 2013).
LOCKSTEP_HOST_DEVICE float clip_factor(double gradient_squares, double clip_norm) {
  const double norm = sqrt(gradient_squares);
  return clip_norm > 0 && norm > clip_norm ? static_cast<float>(clip_norm / norm) : 1.0f;
}

}  // namespace lockstep::model::formulas
