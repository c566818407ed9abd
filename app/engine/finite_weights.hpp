/// \file
/// Checks that all weights of a network are finite.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "model/parameters.hpp"
#include "model/state/parameter_state.hpp"

namespace lockstep::app {

class FiniteWeights {
 public:
  void add(std::string_view tensor, std::span<const float> values);
  bool all() const noexcept { return others_ == 0; }
  /// "3 of 21,000 weights are not finite (dense_1/bias has the first, nan)"; "" if all are finite.
  std::string text() const;

 private:
  std::int64_t weights_ = 0, others_ = 0;
  std::string first_;  ///< tensor of the first weight that is not finite
  float value_ = 0;
};

/// Checks the weights that a network computes with: its parameters, or their average.
FiniteWeights finite_weights(const model::ParameterState& state, const model::ParameterTable& table, bool average);

}  // namespace lockstep::app
