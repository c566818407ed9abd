/// \file
/// The status of a step in memory that operations can write to.
#pragma once

#include <span>

#include "model/backend.hpp"
#include "model/state/scalars.hpp"
#include "model/step_status.hpp"

namespace lockstep::model {

/// One step: write(), report_loss(), an all-reduce of summed(), the update, post(). All but write() may be recorded
/// (Backend::repeat).
class StepStatusBuffer {
 public:
  struct Options {
    /// True if each rank knows the squares of only a part of the gradients (Optimizer): they are summed, too.
    bool sums_gradient_squares = false;
  };
  /// backend must outlive the buffer.
  StepStatusBuffer(Backend& backend, const Options& options) : backend_(backend), options_(options) {}

  /// Writes this rank's own numbers, in the order of the operations.
  void write(const StepStatus& own);
  /// Copies loss and metric from LossSums, and counts a loss that is not finite.
  void report_loss(const Tensor& loss_sums);
  /// The numbers for the all-reduce, in the backend's memory.
  std::span<double> summed();
  Tensor number(double StepStatus::*number) const { return status_number(numbers_.tensor(), number); }
  /// Enqueues a copy to the host.
  void post() { numbers_.post(); }
  /// The copy, after post() and synchronising.
  StepStatus posted() const;

 private:
  Backend& backend_;
  Options options_;
  Scalars numbers_{backend_, kStepStatusSize};
};

}  // namespace lockstep::model
