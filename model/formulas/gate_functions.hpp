/// \file
/// Functions of the gates of a recurrent cell.
#pragma once

#include <cmath>

#include "model/formulas/host_device.hpp"

namespace lockstep::model::formulas {

/// Functions with the full precision of the type.
struct GateFunctions {
  template <class T>
  static LOCKSTEP_HOST_DEVICE T sigmoid(T v) {
    return 1 / (1 + std::exp(-v));
  }
  template <class T>
  static LOCKSTEP_HOST_DEVICE T tanh(T v) {
    return std::tanh(v);
  }
};

}  // namespace lockstep::model::formulas
