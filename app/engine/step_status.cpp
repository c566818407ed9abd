#include "app/engine/step_status.hpp"

namespace lockstep::app {

model::StepStatus to_numbers(const RankStatus& own) noexcept {
  // The p tags are equal if their sum is p times this rank's tag and the sum of their squares is p times its square:
  // then the variance about this rank's tag, (sum of squares) - 2 tag (sum) + p tag^2, is zero. Halves of 16 bits keep
  // the sums exact.
  const double low = own.schedule_tag & 0xffff, high = own.schedule_tag >> 16;
  const double failed = own.failed ? 1 : 0;
  return {.non_finite = failed,
          .samples = own.samples,
          .failed = failed,
          .stop_requests = own.stop_requested ? 1.0 : 0.0,
          .save_requests = own.save_requested ? 1.0 : 0.0,
          .save_due = own.save_due ? 1.0 : 0.0,
          .schedule_low = low,
          .schedule_low2 = low * low,
          .schedule_high = high,
          .schedule_high2 = high * high};
}

StepOutcome outcome_of(const model::StepStatus& sums, const RankStatus& own, int ranks) noexcept {
  const model::StepStatus mine = to_numbers(own);
  const auto differs = [&](double model::StepStatus::*number) { return sums.*number != ranks * (mine.*number); };
  using model::StepStatus;
  return {.loss_sum = sums.loss,
          .metric_sum = sums.metric,
          .samples = sums.samples,
          .losses = std::to_array(sums.losses),
          .failed_ranks = static_cast<int>(sums.failed),
          .not_finite_ranks = static_cast<int>(sums.non_finite) - static_cast<int>(sums.failed),
          .stop_requests = static_cast<int>(sums.stop_requests),
          .save_requests = static_cast<int>(sums.save_requests),
          .save_due = sums.save_due > 0,
          .diverged = differs(&StepStatus::schedule_low) || differs(&StepStatus::schedule_low2) ||
                      differs(&StepStatus::schedule_high) || differs(&StepStatus::schedule_high2)};
}

}  // namespace lockstep::app
