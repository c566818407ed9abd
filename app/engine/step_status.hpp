/// \file
/// The status of a step: each rank's contribution, and the common result.
#pragma once

#include <array>
#include <cstdint>

#include "model/step_status.hpp"

namespace lockstep::app {

/// One rank's contribution to the status of a step.
struct RankStatus {
  double samples = 0;              ///< this rank's samples
  bool failed = false;             ///< this rank could not compute its part (its gradients are zero)
  bool stop_requested = false;     ///< stop requested by a signal or a time limit
  bool save_requested = false;     ///< checkpoint requested by a signal
  bool save_due = false;           ///< checkpoint due by the clock or requested in the run folder
  std::uint32_t schedule_tag = 0;  ///< hash of (step, bucket schedule): differs if ranks are not in the same step
};

/// Returns the numbers to sum over the ranks, without those that the backend adds.
model::StepStatus to_numbers(const RankStatus& own) noexcept;

/// The common result, the same on all ranks.
struct StepOutcome {
  double loss_sum = 0, metric_sum = 0, samples = 0;
  std::array<double, model::kMaxLosses> losses = {};  ///< sum of each loss, if there are several
  int failed_ranks = 0;
  int not_finite_ranks = 0;
  int stop_requests = 0;
  int save_requests = 0;
  bool save_due = false;
  bool diverged = false;  ///< schedule tags were not equal: ranks are not in the same step
};

/// Interprets the sums over `ranks` ranks. `own`: this rank's contribution.
StepOutcome outcome_of(const model::StepStatus& sums, const RankStatus& own, int ranks) noexcept;

}  // namespace lockstep::app
