/// \file
/// Padded series (PaddedSeries in sequence_operations.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/formulas/host_device.hpp"
#include "model/sequence_operations.hpp"

namespace lockstep::model::formulas {

/// Returns the length, clamped to [0, steps].
LOCKSTEP_HOST_DEVICE std::size_t steps_of_length(std::int32_t length, std::size_t steps) {
  if (length <= 0) return 0;
  return static_cast<std::size_t>(length) < steps ? static_cast<std::size_t>(length) : steps;
}

/// Returns the mark of row `row` of `rows` (SequenceOperations::padded_rows).
LOCKSTEP_HOST_DEVICE std::int32_t padded_row(std::size_t row, const std::int32_t* lengths, std::size_t samples,
                                             std::size_t rows, PaddedRows kind) {
  const std::size_t steps = rows / samples;
  if (kind == PaddedRows::inside) return row % steps < steps_of_length(lengths[row / steps], steps) ? 1 : 0;
  const std::size_t step = steps - 1 - row / samples;
  return step + 1 != steps_of_length(lengths[row % samples], steps) ? 1 : 0;
}

}  // namespace lockstep::model::formulas
