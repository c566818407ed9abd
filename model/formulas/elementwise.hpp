/// \file
/// Functions of one element and their derivatives, written once for all backends. `Exp` provides a backend's functions
/// for its number type T: the exponential `static T of(T)`, tanh_of, log1p_of, log1p_of_share for numbers in [0, 1],
/// and normal_share_of, the standard normal distribution function. Comparisons are written so that a NaN stays a NaN.
///
/// A new function needs a name in Function and in operations/elementwise.cpp, its value and slope here, and its node in
/// app/exchange/onnx_operations.cpp.
#pragma once

#include <cmath>
#include <stdexcept>

#include "model/formulas/gelu.hpp"
#include "model/formulas/host_device.hpp"
#include "model/operation_types.hpp"

namespace lockstep::model::formulas {

inline constexpr double kRootOfHalf = 0.70710678118654752440;
inline constexpr double kNormalDensity = 0.39894228040143267794;  ///< 1 / sqrt(2 pi)

template <class T>
LOCKSTEP_HOST_DEVICE T hard_share(T x) {
  return x <= -3 ? T{0} : x >= 3 ? T{1} : x / 6 + T{1} / 2;
}

template <Function kFunction, class Exp, class T>
LOCKSTEP_HOST_DEVICE T value_of(T x, T parameter) {
  if constexpr (kFunction == Function::relu) return x < 0 ? T{0} : x;
  if constexpr (kFunction == Function::leaky_relu) return x < 0 ? parameter * x : x;
  if constexpr (kFunction == Function::elu) return x < 0 ? parameter * (Exp::of(x) - 1) : x;
  if constexpr (kFunction == Function::tanh) return Exp::tanh_of(x);
  if constexpr (kFunction == Function::sigmoid) return 1 / (1 + Exp::of(-x));
  if constexpr (kFunction == Function::silu) return x / (1 + Exp::of(-x));
  if constexpr (kFunction == Function::gelu) return x / (1 + Exp::of(-gelu_exponent(x)));
  if constexpr (kFunction == Function::gelu_exact) {
    return x * Exp::normal_share_of(x);
  }
  if constexpr (kFunction == Function::softplus) {
    return (x > 0 ? x : T{0}) + Exp::log1p_of_share(Exp::of(x > 0 ? -x : x));
  }
  if constexpr (kFunction == Function::log1p) return Exp::log1p_of(x);
  if constexpr (kFunction == Function::hard_sigmoid) return hard_share(x);
  if constexpr (kFunction == Function::hard_swish) return x * hard_share(x);
  return parameter * x;  // scale
}

/// Returns the derivative. v is x or y, as slope_reads() says; `scale` ignores it.
template <Function kFunction, class Exp, class T>
LOCKSTEP_HOST_DEVICE T slope_of(T v, T parameter) {
  if constexpr (kFunction == Function::relu) return v > 0 ? T{1} : T{0};
  if constexpr (kFunction == Function::leaky_relu) return v > 0 ? T{1} : parameter;
  if constexpr (kFunction == Function::elu) return v > 0 ? T{1} : v + parameter;
  if constexpr (kFunction == Function::tanh) return 1 - v * v;
  if constexpr (kFunction == Function::sigmoid) return v * (1 - v);
  if constexpr (kFunction == Function::silu) {
    const T share = 1 / (1 + Exp::of(-v));
    return share * (1 + v * (1 - share));
  }
  if constexpr (kFunction == Function::gelu) {
    const T share = 1 / (1 + Exp::of(-gelu_exponent(v)));
    return share + v * (share * (1 - share)) * gelu_exponent_derivative(v);
  }
  if constexpr (kFunction == Function::gelu_exact) {
    return Exp::normal_share_of(v) + v * (static_cast<T>(kNormalDensity) * Exp::of(-v * v / 2));
  }
  if constexpr (kFunction == Function::softplus) return 1 / (1 + Exp::of(-v));
  if constexpr (kFunction == Function::log1p) return 1 / (1 + v);
  if constexpr (kFunction == Function::hard_sigmoid) return v <= -3 ? T{0} : v >= 3 ? T{0} : T{1} / 6 + (v - v);
  if constexpr (kFunction == Function::hard_swish) return v <= -3 ? T{0} : v >= 3 ? T{1} : v / 3 + T{1} / 2;
  return parameter;  // scale
}

/// Calls work.template operator()<function>().
template <class Work>
void for_function(Function function, const Work& work) {
  switch (function) {
    case Function::relu:
      return work.template operator()<Function::relu>();
    case Function::leaky_relu:
      return work.template operator()<Function::leaky_relu>();
    case Function::elu:
      return work.template operator()<Function::elu>();
    case Function::tanh:
      return work.template operator()<Function::tanh>();
    case Function::sigmoid:
      return work.template operator()<Function::sigmoid>();
    case Function::silu:
      return work.template operator()<Function::silu>();
    case Function::gelu:
      return work.template operator()<Function::gelu>();
    case Function::gelu_exact:
      return work.template operator()<Function::gelu_exact>();
    case Function::softplus:
      return work.template operator()<Function::softplus>();
    case Function::log1p:
      return work.template operator()<Function::log1p>();
    case Function::hard_sigmoid:
      return work.template operator()<Function::hard_sigmoid>();
    case Function::hard_swish:
      return work.template operator()<Function::hard_swish>();
    case Function::scale:
      return work.template operator()<Function::scale>();
  }
  throw std::invalid_argument("no such function of an element");
}

}  // namespace lockstep::model::formulas
