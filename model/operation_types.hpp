/// \file
/// The few words that all operations share.
#pragma once

#include <string_view>

#include "model/tensor.hpp"

namespace lockstep::model {

enum class Activation { none, relu, tanh, sigmoid };  ///< those whose derivative follows from y
Activation parse_activation(std::string_view name);   ///< throws std::invalid_argument listing the valid names
std::string_view name_of(Activation activation) noexcept;
enum class Accumulate : bool { no, yes };

/// Element types of a backend: of activations and of parameters as products read them; of parameters, gradients and
/// optimiser state as they are kept.
struct OperationTypes {
  ElementType compute = ElementType::float32;
  ElementType master = ElementType::float32;
};

}  // namespace lockstep::model
