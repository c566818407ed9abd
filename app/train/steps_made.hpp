/// \file
/// The steps that one advance of the training loop makes.
#pragma once

#include <cstdint>

#include "app/plan/workload.hpp"

namespace lockstep::app {

/// One step, or a round of several: from `before` steps done to `now`.
struct StepsMade {
  std::int64_t before = 0, now = 0;
  /// True if the event is due in one of them.
  bool include(const Interval& every) const noexcept { return every.lies_between(before, now); }
};

}  // namespace lockstep::app
