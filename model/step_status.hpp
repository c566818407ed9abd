/// \file
/// The numbers that the ranks exchange in each step, in one small all-reduce.
#pragma once

#include <cstddef>
#include <type_traits>

#include "model/tensor.hpp"

namespace lockstep::model {

/// Largest number of losses of a network.
inline constexpr std::size_t kMaxLosses = 8;

/// The numbers and their order, on the wire and in the backend's memory. Each one is summed over the ranks. The backend
/// adds loss, metric, non_finite, losses and gradient_squares; the caller that runs the step adds the others.
struct StepStatus {
  double loss = 0;                 ///< sum over the samples
  double metric = 0;               ///< likewise
  double non_finite = 0;           ///< ranks without a finite loss, including failed ranks; > 0 (or NaN): no update
  double samples = 0;              ///< samples in the step
  double failed = 0;               ///< ranks whose part of the step failed
  double stop_requests = 0;        ///< ranks that request a stop
  double save_requests = 0;        ///< ranks that request a checkpoint
  double save_due = 0;             ///< ranks on which a checkpoint is due by the clock or the folder
  double schedule_low = 0;         ///< low half of a rank's schedule tag
  double schedule_low2 = 0;        ///< its square
  double schedule_high = 0;        ///< high half
  double schedule_high2 = 0;       ///< its square
  double losses[kMaxLosses] = {};  ///< unweighted sum of each of several losses; else 0
  /// Sum of squares of the gradients that a rank updates. It is the last member because it is not summed over ranks if
  /// each rank updates all gradients.
  double gradient_squares = 0;
};
inline constexpr std::size_t kStepStatusSize = sizeof(StepStatus) / sizeof(double);  ///< numbers
static_assert(std::is_trivially_copyable_v<StepStatus> && std::is_standard_layout_v<StepStatus>);

/// Returns the status that a tensor float64 [1, kStepStatusSize] in host memory holds.
inline StepStatus& step_status_in(const Tensor& tensor) noexcept { return *static_cast<StepStatus*>(tensor.data); }

/// Returns one number of such a tensor, as float64 [1, 1]: `status_number(tensor, &StepStatus::non_finite)`.
inline Tensor status_number(const Tensor& tensor, double StepStatus::*number) noexcept {
  static constexpr StepStatus kLayout;
  const auto offset = reinterpret_cast<const char*>(&(kLayout.*number)) - reinterpret_cast<const char*>(&kLayout);
  return tensor.slice({static_cast<std::size_t>(offset) / sizeof(double), 1});
}

}  // namespace lockstep::model
