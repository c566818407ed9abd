/// \file
/// Tokens that are stored as numbers.
#pragma once

#include <cstdint>

#include "model/formulas/host_device.hpp"

namespace lockstep::model::formulas {

/// Converts a number to a token. Numbers outside the vocabulary become the nearest token.
template <class Number>
LOCKSTEP_HOST_DEVICE std::int32_t token(Number number, std::int64_t vocabulary) {
  const auto value = static_cast<double>(number);
  if (!(value > 0)) return 0;
  return static_cast<std::int32_t>(value < static_cast<double>(vocabulary) ? value
                                                                           : static_cast<double>(vocabulary - 1));
}

}  // namespace lockstep::model::formulas
