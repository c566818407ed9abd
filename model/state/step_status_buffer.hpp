/// \file
/// The status of a step where operations can write to it.
#pragma once

#include <array>
#include <cstddef>
#include <memory_resource>
#include <span>
#include <vector>

#include "model/backend.hpp"
#include "model/state/arena.hpp"
#include "model/step_status.hpp"

namespace lockstep::model {

/// One step: write(), report_loss(), an all-reduce of summed(), the update, post(). All but write() and post() may be
/// recorded (Backend::repeat). A step may be enqueued before the host knows the status of the one before: from an
/// update that was refused on, all are, until allow_updates().
class StepStatusBuffer {
 public:
  struct Options {
    /// Each rank knows the squares of a part of the gradients alone (Optimizer): they are summed, too.
    bool sums_gradient_squares = false;
  };
  /// backend must outlive the buffer.
  StepStatusBuffer(Backend& backend, const Options& options);

  /// This rank's own numbers, in the order of the operations.
  void write(const StepStatus& own);
  /// Takes over loss and metric from LossSums, and counts a loss that is not finite, or an update that was refused.
  void report_loss(const Tensor& loss_sums);
  /// What the all-reduce sums, in the backend's memory.
  std::span<double> summed();
  Tensor number(double StepStatus::*number) const { return status_number(numbers_.tensor(), number); }
  /// What the update waits for.
  UpdateGate gate() const;
  /// Enqueued after an update that was refused: the next ones are not for that.
  void allow_updates() { backend_.fill_zero(refused_.tensor()); }
  /// Enqueues a copy to the host.
  void post();
  /// The last copy (`later` 0), or the one before it (1), after post() and synchronising.
  StepStatus posted(int later = 0) const;

 private:
  Backend& backend_;
  Options options_;
  Arena numbers_, refused_;  ///< float64
  std::array<std::pmr::vector<double>, 2> copies_;
  std::size_t last_ = 0;
};

}  // namespace lockstep::model
