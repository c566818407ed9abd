/// \file
/// The backward pass of an LSTM in several calls, as in a wavefront: each with the same number of steps, the last steps
/// first.
#pragma once

#include <algorithm>

#include "model/sequence_operations.hpp"

namespace lockstep::model::test {

/// `whole`: operands of all steps, in one part if they have places. `operations`: SequenceOperations, or a type with
/// the same lstm_backward().
template <class Operations>
void lstm_backward_in_parts(Operations& operations, const Lstm& shape, const LstmBackwardOperands& whole,
                            std::int64_t steps_of_part) {
  const auto rows = [&](const Tensor& tensor, std::int64_t first, std::int64_t count) {
    return tensor.row_range(first * shape.sequences, count * shape.sequences);
  };
  for (std::int64_t end = shape.steps; end > 0;) {
    const std::int64_t first = std::max<std::int64_t>(end - steps_of_part, 0), count = end - first;
    Lstm part = shape;
    part.steps = count;
    operations.lstm_backward(part, {.gates = rows(whole.gates, first, count),
                                    .recurrent = whole.recurrent,
                                    .cells = rows(whole.cells, first, count + 1),
                                    .d_hidden = rows(whole.d_hidden, first, count),
                                    .d_cell = whole.d_cell,
                                    .gates_after = end < shape.steps ? rows(whole.gates, end, 1) : Tensor{},
                                    .places = whole.places});
    end = first;
  }
}

}  // namespace lockstep::model::test
