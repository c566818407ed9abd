/// \file
/// The time that ranks wait for each other if they do not take every step together.
#pragma once

#include "app/options/train_options.hpp"

namespace lockstep::app {

/// Seconds after which a rank that says nothing counts as stuck: ten times the longest step (or round of local steps)
/// so far, plus both deadlines.
inline double stuck_after(const ExecutionOptions& execution, double longest_step) noexcept {
  constexpr double kTimesLonger = 10;
  return execution.deadline + execution.io_deadline + kTimesLonger * longest_step;
}

/// Seconds that a worker waits for its servers: one that waits for a rank that is stuck says so first, when it is its
/// turn among the ranks.
inline double servers_stuck_after(const ExecutionOptions& execution, double longest_step) noexcept {
  constexpr double kSecondsToSpeak = 7;
  return stuck_after(execution, longest_step) + execution.deadline + kSecondsToSpeak;
}

}  // namespace lockstep::app
