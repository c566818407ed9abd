/// \file
/// The status of a step, in memory that operations write.
#pragma once

#include <span>

#include "model/backend.hpp"
#include "model/state/scalars.hpp"
#include "model/step_status.hpp"

namespace lockstep::model {

/// One step: write(), report_loss(), all-reduce of summed(), update, post(). All but write() may be recorded
/// (Backend::repeat).
class StepStatusBuffer {
 public:
  struct Options {
    /// True if each rank has squares of only its part of the gradients (Optimizer); summed() then includes them.
    bool sums_gradient_squares = false;
  };
  /// backend must outlive the buffer.
  StepStatusBuffer(Backend& backend, const Options& options) : backend_(backend), options_(options) {}

  /// Enqueues the write of this rank's own numbers.
  void write(const StepStatus& own);
  /// Enqueues Backend::report_loss().
  void report_loss(const Tensor& loss_sums);
  /// The numbers to all-reduce, in the backend's memory.
  std::span<double> summed();
  Tensor number(double StepStatus::*number) const { return status_number(numbers_.tensor(), number); }
  /// Enqueues a copy to the host.
  void post() { numbers_.post(); }
  /// Returns the copy. Valid after post() and Backend::synchronize().
  StepStatus posted() const;

 private:
  Backend& backend_;
  Options options_;
  Scalars numbers_{backend_, kStepStatusSize};
};

}  // namespace lockstep::model
