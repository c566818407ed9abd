/// \file
/// Types that all operations share.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "model/tensor.hpp"

namespace lockstep::model {

enum class Activation { none, relu, tanh, sigmoid };  ///< only functions whose derivative follows from y
Activation parse_activation(std::string_view name);   ///< throws std::invalid_argument listing the valid names
std::string_view name_of(Activation activation) noexcept;
enum class Accumulate : bool { no, yes };

/// Functions of one element (model/formulas/elementwise.hpp).
enum class Function {
  relu,
  leaky_relu,  ///< parameter * x below 0
  elu,         ///< parameter * (exp(x) - 1) below 0 (Clevert et al. 2015)
  tanh,
  sigmoid,
  silu,          ///< x * sigmoid(x)
  gelu,          ///< the form with tanh (formulas/gelu.hpp)
  gelu_exact,    ///< x * the standard normal distribution function of x
  softplus,      ///< log(1 + exp(x))
  log1p,         ///< log(1 + x)
  hard_sigmoid,  ///< x / 6 + 1/2, within 0 and 1
  hard_swish,    ///< x * hard_sigmoid(x) (Howard et al. 2019)
  scale          ///< parameter * x
};
struct Elementwise {
  Function function = Function::relu;
  float parameter = 1;  ///< for functions that have one
};
/// Operand from which the derivative is computed.
enum class SlopeReads { nothing, input, output };
constexpr SlopeReads slope_reads(Function function) noexcept {
  if (function == Function::scale) return SlopeReads::nothing;
  switch (function) {
    case Function::silu:
    case Function::gelu:
    case Function::gelu_exact:
    case Function::softplus:
    case Function::log1p:
    case Function::hard_sigmoid:
    case Function::hard_swish:
      return SlopeReads::input;
    default:
      return SlopeReads::output;
  }
}

/// Queue of an operation on a device. Operations of one queue run in the order of the calls. Only Backend::order()
/// orders operations of different queues. A host has one queue.
enum class Queue { main, side_1, side_2 };
inline constexpr int kSideQueues = 2;

/// Operands of the backward pass of a linear map (a dense layer, a convolution); all but the last three are inputs.
struct LinearBackwardOperands {
  Tensor x, w;
  Tensor y = {};       ///< may be absent without an activation
  Tensor d_y;          ///< overwritten with the gradient before the activation
  Tensor d_w = {};     ///< absent for a frozen weight
  Tensor d_bias = {};  ///< may be absent
  Tensor d_x = {};     ///< may be absent
};

/// Element types of a backend. compute: activations, and parameters as GEMMs read them. master: stored parameters,
/// gradients and optimiser state. narrow: values of Holds::narrow and their gradients.
struct OperationTypes {
  ElementType compute = ElementType::float32;
  ElementType master = ElementType::float32;
  ElementType narrow = compute;
};

/// Body of virtual functions do_OPERATION() that a device does not implement. `function`: __func__ of the caller.
[[noreturn]] inline void missing_operation(const char* function) {
  throw std::logic_error(std::string(function).substr(3) + ": the backend lacks this operation");
}

}  // namespace lockstep::model
