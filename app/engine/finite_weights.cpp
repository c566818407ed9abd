#include "app/engine/finite_weights.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "app/report/figures.hpp"

namespace lockstep::app {

void FiniteWeights::add(std::string_view tensor, std::span<const float> values) {
  const auto is_no_number = [](float value) { return !std::isfinite(value); };
  const std::int64_t found = std::count_if(values.begin(), values.end(), is_no_number);
  if (others_ == 0 && found > 0) {
    first_ = tensor;
    value_ = *std::find_if(values.begin(), values.end(), is_no_number);
  }
  others_ += found;
  weights_ += std::ssize(values);
}

std::string FiniteWeights::text() const {
  if (all()) return "";
  return fmt::format("{} of {} not finite ({} has the first, {})", with_commas(others_),
                     counted(weights_, "weight") + (others_ == 1 ? " is" : " are"), first_, value_);
}

FiniteWeights finite_weights(const model::ParameterState& state, const model::ParameterTable& table, bool average) {
  std::vector<float> values(state.elements());
  state.download_group(average ? "average" : "parameters", values);
  FiniteWeights finite;
  for (const model::Parameter& parameter : table.all()) {
    finite.add(parameter.name, std::span<const float>(values).subspan(parameter.offset, parameter.count));
  }
  return finite;
}

}  // namespace lockstep::app
