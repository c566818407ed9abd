/// \file
/// Activations and their derivatives for one element. Comparisons are written so that a NaN stays a NaN.
#pragma once

#include <cmath>

#include "model/backend.hpp"
#include "model/formulas/host_device.hpp"

namespace lockstep::model::formulas {

template <Activation kActivation>
LOCKSTEP_HOST_DEVICE float activate(float v) {
  if constexpr (kActivation == Activation::relu) return v < 0 ? 0.0f : v;
  if constexpr (kActivation == Activation::tanh) return std::tanh(v);
  if constexpr (kActivation == Activation::sigmoid) return 1 / (1 + std::exp(-v));
  return v;
}

/// Returns the gradient before the activation, given the gradient after it and y = activate(v).
template <Activation kActivation>
LOCKSTEP_HOST_DEVICE float gradient_before(float y, float d_y) {
  if constexpr (kActivation == Activation::relu) return y > 0 ? d_y : 0.0f;
  if constexpr (kActivation == Activation::tanh) return d_y * (1 - y * y);
  if constexpr (kActivation == Activation::sigmoid) return d_y * (y * (1 - y));
  return d_y;
}

}  // namespace lockstep::model::formulas
