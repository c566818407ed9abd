/// \file
/// Time limits for ranks that wait for each other but do not make every step together.
#pragma once

#include "app/options/train_options.hpp"

namespace lockstep::app {

/// Seconds without a message after which a rank counts as stuck: ten times the longest step (or round of local steps)
/// so far, plus both deadlines.
inline double stuck_after(const ExecutionOptions& execution, double longest_step) noexcept {
  constexpr double kTimesLonger = 10;
  return execution.deadline + execution.io_deadline + kTimesLonger * longest_step;
}

/// Seconds that a worker waits for its servers. They are longer than stuck_after(): a server that waits for a stuck
/// rank must have time to report that rank first, and ranks report errors in turn.
inline double servers_stuck_after(const ExecutionOptions& execution, double longest_step) noexcept {
  constexpr double kSecondsToSpeak = 7;
  return stuck_after(execution, longest_step) + execution.deadline + kSecondsToSpeak;
}

}  // namespace lockstep::app
