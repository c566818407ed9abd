/// \file
/// The status of a step: what each rank says in it, and what all ranks then know.
#pragma once

#include <cstdint>

#include "model/step_status.hpp"

namespace lockstep::app {

/// What one rank says of a step.
struct RankStatus {
  double samples = 0;              ///< this rank's samples
  bool failed = false;             ///< this rank could not do its part (its gradients are zero)
  bool stop_requested = false;     ///< a signal, a time limit
  bool save_requested = false;     ///< a signal wants a checkpoint
  bool save_due = false;           ///< the clock or the run folder does
  std::uint32_t schedule_tag = 0;  ///< hash of (step, bucket schedule): differs when ranks have diverged
};

/// The numbers that are summed over the ranks, without what the backend adds.
model::StepStatus to_numbers(const RankStatus& own) noexcept;

/// What all ranks know.
struct StepOutcome {
  double loss_sum = 0, metric_sum = 0, samples = 0;
  int failed_ranks = 0;
  int not_finite_ranks = 0;
  int stop_requests = 0;
  int save_requests = 0;
  bool save_due = false;
  bool diverged = false;  ///< schedule tags were not all equal
};

/// Reads the sums over `ranks` ranks, of which this one said `own`.
StepOutcome outcome_of(const model::StepStatus& sums, const RankStatus& own, int ranks) noexcept;

}  // namespace lockstep::app
