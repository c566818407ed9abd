/// \file
/// The numbers that the ranks exchange in each step, in one small all-reduce.
#pragma once

#include <cstddef>
#include <type_traits>

#include "model/tensor.hpp"

namespace lockstep::model {

/// Largest number of losses that a network adds.
inline constexpr std::size_t kMaxLosses = 8;

/// The numbers and their order, on the wire and in the backend's memory. Each one is summed over the ranks. The backend
/// adds loss, metric, non_finite, losses and gradient_squares; the caller that runs the step adds the others.
struct StepStatus {
  double loss = 0;                 ///< sum over the samples
  double metric = 0;               ///< likewise
  double non_finite = 0;           ///< ranks without a finite loss, failed ones among them; > 0 (or NaN): no update
  double samples = 0;              ///< samples in the step
  double failed = 0;               ///< ranks whose part of the step failed
  double stop_requests = 0;        ///< ranks that request a stop
  double save_requests = 0;        ///< ranks with a request to write a checkpoint
  double save_due = 0;             ///< ranks whose clock or folder makes a checkpoint due
  double schedule_low = 0;         ///< low half of a rank's schedule tag
  double schedule_low2 = 0;        ///< its square
  double schedule_high = 0;        ///< high half
  double schedule_high2 = 0;       ///< its square
  double losses[kMaxLosses] = {};  ///< each of several losses' own sum; 0 beyond them
  /// Sum over the gradients that a rank updates. Last: if each rank updates all of them it is not summed over ranks.
  double gradient_squares = 0;
};
inline constexpr std::size_t kStepStatusSize = sizeof(StepStatus) / sizeof(double);  ///< numbers
static_assert(std::is_trivially_copyable_v<StepStatus> && std::is_standard_layout_v<StepStatus>);

/// The status in a tensor float64 [1, kStepStatusSize] of host memory.
inline StepStatus& step_status_in(const Tensor& tensor) noexcept { return *static_cast<StepStatus*>(tensor.data); }

/// One number of such a tensor, as float64 [1, 1]: `status_number(tensor, &StepStatus::non_finite)`.
inline Tensor status_number(const Tensor& tensor, double StepStatus::*number) noexcept {
  static constexpr StepStatus kLayout;
  const auto offset = reinterpret_cast<const char*>(&(kLayout.*number)) - reinterpret_cast<const char*>(&kLayout);
  return tensor.slice({static_cast<std::size_t>(offset) / sizeof(double), 1});
}

}  // namespace lockstep::model
