/// \file
/// Activations in float64 for the reference backend.
#pragma once

#include <cmath>

#include "model/operation_types.hpp"

namespace lockstep::model {

inline double activate(Activation activation, double v) {
  switch (activation) {
    case Activation::none:
      return v;
    case Activation::relu:
      return v < 0 ? 0 : v;
    case Activation::tanh:
      return std::tanh(v);
    case Activation::sigmoid:
      return 1 / (1 + std::exp(-v));
  }
  return v;
}

/// Returns d_v from d_y, given y = activate(v).
inline double activation_gradient(Activation activation, double y, double d_y) {
  switch (activation) {
    case Activation::none:
      return d_y;
    case Activation::relu:
      return y > 0 ? d_y : 0;
    case Activation::tanh:
      return d_y * (1 - y * y);
    case Activation::sigmoid:
      return d_y * y * (1 - y);
  }
  return d_y;
}

}  // namespace lockstep::model
