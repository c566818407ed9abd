/// \file
/// The Gaussian error linear unit in its form with tanh (Hendrycks & Gimpel 2016; GPT-2), and its derivative:
///   gelu(x) = 0.5 x (1 + tanh(u)) = x s,  u = sqrt(2 / pi) (x + 0.044715 x^3),  s = 1 / (1 + exp(-2 u)),
///   gelu'(x) = s + x s (1 - s) 2 u'(x),   u'(x) = sqrt(2 / pi) (1 + 3 * 0.044715 x^2).
/// One exponential each. A NaN stays a NaN.
#pragma once

#include <cmath>

#include "model/formulas/host_device.hpp"

namespace lockstep::model::formulas {

inline constexpr double kTwoRootsTwoOverPi = 1.5957691216057307117597842397375;  ///< 2 sqrt(2 / pi)
inline constexpr double kGeluCubic = 0.044715;

/// These return 2 u above, and its derivative.
template <class T>
LOCKSTEP_HOST_DEVICE T gelu_exponent(T x) {
  return static_cast<T>(kTwoRootsTwoOverPi) * x * (1 + static_cast<T>(kGeluCubic) * x * x);
}
template <class T>
LOCKSTEP_HOST_DEVICE T gelu_exponent_derivative(T x) {
  return static_cast<T>(kTwoRootsTwoOverPi) * (1 + 3 * static_cast<T>(kGeluCubic) * x * x);
}

/// Returns s above: the share of x that passes.
template <class T>
LOCKSTEP_HOST_DEVICE T gelu_share(T x) {
  return 1 / (1 + std::exp(-static_cast<T>(kTwoRootsTwoOverPi) * x * (1 + static_cast<T>(kGeluCubic) * x * x)));
}

template <class T>
LOCKSTEP_HOST_DEVICE T gelu(T x) {
  return x * gelu_share(x);
}

template <class T>
LOCKSTEP_HOST_DEVICE T gelu_derivative(T x) {
  const T share = gelu_share(x);
  return share + x * (share * (1 - share)) *
                     (static_cast<T>(kTwoRootsTwoOverPi) * (1 + 3 * static_cast<T>(kGeluCubic) * x * x));
}

}  // namespace lockstep::model::formulas
