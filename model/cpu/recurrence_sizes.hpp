/// \file
/// Sizes of a recurrence on the CPU, and when its steps are split among threads.
#pragma once

#include <algorithm>
#include <cstddef>

#include "model/cpu/gemm.hpp"

namespace lockstep::model::cpu {

/// Granule of a partition, in units; and the multiplications of a step below which it stays on one thread.
inline constexpr std::size_t kUnitGranule = 16;
inline constexpr std::size_t kThreadingWork = 256 * 1024;

struct RecurrenceSizes {
  /// `Shape`: Lstm or Gru; `gates_of_unit`: number of gates.
  template <class Shape>
  RecurrenceSizes(const Shape& shape, std::size_t gates_of_unit)
      : steps(static_cast<std::size_t>(shape.steps)),
        sequences(static_cast<std::size_t>(shape.sequences)),
        hidden(static_cast<std::size_t>(shape.hidden)),
        gates(gates_of_unit * hidden) {}

  /// The smallest count for which a partition into `granule` pays.
  std::size_t threshold(std::size_t count, std::size_t granule) const {
    return sequences * hidden * gates < kThreadingWork ? count + 1 : 2 * granule;
  }
  /// Floats of workspace for the weights that are multiplied in each step, forward or backward.
  std::size_t workspace(Bf16Unit unit) const noexcept {
    return std::max(SharedFactor::workspace(hidden, gates, unit), SharedFactor::workspace(gates, hidden, unit));
  }

  /// The order of a step's product: to and fro.
  static PanelOrder order_of(std::size_t step) noexcept {
    return step % 2 == 0 ? PanelOrder::ascending : PanelOrder::descending;
  }

  std::size_t steps, sequences, hidden, gates;
};

}  // namespace lockstep::model::cpu
