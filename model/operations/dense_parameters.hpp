/// \file
/// Declares the parameters of a dense layer.
#pragma once

#include <cstdint>

#include "model/graph/operation.hpp"

namespace lockstep::model {

/// Declares CALL/weight [inputs, units] and CALL/bias [units]. padding: elements after the bias. Returns the number of
/// the weight; the bias has the next number.
inline std::size_t declare_dense(Declarations& declarations, const Call& call, std::int64_t inputs,
                                 std::int64_t padding = 0) {
  const auto units = call.get<std::int64_t>("units");
  const std::size_t weight = declarations.parameter(
      call.name,
      {.name = "weight",
       .shape = {inputs, units},
       .initializer = call.initializer("init").value_or(Initializer{.scheme = Initializer::Scheme::he_normal}),
       .fan_in = inputs,
       .fan_out = units,
       .decay = call.get<bool>("decay") ? Decay::yes : Decay::no});
  declarations.parameter(call.name, {.name = "bias",
                                     .shape = {units},
                                     .initializer = call.initializer("bias-init").value_or(Initializer{}),
                                     .fan_in = inputs,
                                     .fan_out = units,
                                     .decay = Decay::no,
                                     .padding = padding});
  return weight;
}

}  // namespace lockstep::model
