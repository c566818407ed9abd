/// \file
/// Sizes of a recurrence on the CPU, and the partition of its steps among threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "model/cpu/gemm.hpp"
#include "model/tensor.hpp"

namespace lockstep::model::cpu {

/// Partitions are aligned to kUnitGranule units. A step with fewer than kThreadingWork multiplications uses one thread.
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

  /// Returns the threshold for ThreadPool::split() of `count` items with this granule.
  std::size_t threshold(std::size_t count, std::size_t granule) const {
    return sequences * hidden * gates < kThreadingWork ? count + 1 : 2 * granule;
  }
  /// Floats of workspace for the packed recurrent weights, forward or backward, and for a zero state.
  std::size_t workspace(Bf16Unit unit) const noexcept { return weights(unit) + hidden; }
  std::size_t weights(Bf16Unit unit) const noexcept {
    return std::max(SharedFactor::workspace(hidden, gates, unit), SharedFactor::workspace(gates, hidden, unit));
  }

  /// Order of panels in a step's product; it alternates.
  static PanelOrder order_of(std::size_t step) noexcept {
    return step % 2 == 0 ? PanelOrder::ascending : PanelOrder::descending;
  }

  std::size_t steps, sequences, hidden, gates;
};

/// Sequences that restart with zero state at some steps.
class Beginnings {
 public:
  /// places: int32 [steps * sequences, 1], 0 at restarts; absent: no restarts. zeros: memory of `hidden` floats for a
  /// zero state.
  Beginnings(const Tensor& places, std::size_t sequences, std::span<float> zeros)
      : places_(places.elements<std::int32_t>()), sequences_(sequences), zeros_(zeros) {
    if (!places_.empty()) std::ranges::fill(zeros_, 0.0f);
  }
  bool begins(std::size_t step, std::size_t sequence) const {
    return !places_.empty() && places_[step * sequences_ + sequence] == 0;
  }
  /// Returns a sequence's state before a step.
  const float* before(std::size_t step, std::size_t sequence, const float* state) const {
    return begins(step, sequence) ? zeros_.data() : state;
  }
  /// Calls visit(first, count) for each run of consecutive sequences that carry their state into a step.
  template <class Visit>
  void for_each_run(std::size_t step, const Visit& visit) const {
    if (places_.empty()) return visit(std::size_t{0}, sequences_);
    for (std::size_t first = 0; first < sequences_;) {
      std::size_t end = first;
      while (end < sequences_ && !begins(step, end)) ++end;
      if (end > first) visit(first, end - first);
      first = end + 1;
    }
  }

 private:
  std::span<const std::int32_t> places_;
  std::size_t sequences_;
  std::span<float> zeros_;
};

}  // namespace lockstep::model::cpu
