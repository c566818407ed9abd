/// \file
/// One synchronous SGD step over all ranks: what train and bench step share.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "app/report.hpp"
#include "app/workload.hpp"
#include "comm/agreement.hpp"
#include "comm/communicator.hpp"
#include "comm/gradient_reducer.hpp"
#include "io/prefetcher.hpp"
#include "model/model.hpp"
#include "model/schedule.hpp"

namespace lockstep::app {

/// This rank's share of a micro-step, and where the step stands in the data.
struct MicroBatch {
  model::Batch batch;
  std::int64_t step_count = 0;  ///< samples of the whole step: the divisor of the loss
  std::int64_t epoch = 0;
  std::int64_t next_position = 0;  ///< in the epoch, after this step
};

/// The next micro-batch from the reading thread.
MicroBatch next_micro_batch(io::Prefetcher& prefetcher, model::ElementType x_type);

class Trainer {
 public:
  /// Delivers the next micro-batch; called `accumulate` times per step. May throw: the step then fails on all ranks.
  using NextMicroBatch = std::function<MicroBatch()>;

  /// All references must outlive the trainer. Collective: gradient memory was made by `communicator`.
  Trainer(model::Model& model, comm::Communicator& communicator, comm::GradientReducer& reducer,
          const model::OptimizerOptions& optimizer, const model::LearningRateSchedule& schedule,
          std::int64_t accumulate, NextMicroBatch next);

  /// What this rank wants to say with the next step.
  struct Say {
    bool stop = false;
    std::string error;  ///< not empty: this rank failed between steps (a full disk …)
  };
  struct Result {
    StepFigures figures;
    int stop_requests = 0;
  };

  /// Forward, backward (reducing as gradients appear), vote, guard, update. Collective. Throws comm::AgreedError,
  /// before the update, when a rank failed or a number is not finite.
  Result step(const Say& say);

  std::int64_t steps_done() const noexcept { return steps_done_; }
  /// Where a resumed run goes on: what epoch() and next_position() say until the first step.
  void start_at(std::int64_t steps_done, std::int64_t epoch, std::int64_t position) noexcept {
    steps_done_ = steps_done;
    micro_.epoch = epoch;
    micro_.next_position = position;
  }
  /// Compute and communication since construction. The caller knows the rest: the time spent waiting for the reader,
  /// which is part of compute here, and the total.
  const TimeSplit& time() const noexcept { return time_; }
  std::int64_t epoch() const noexcept { return micro_.epoch; }
  std::int64_t next_position() const noexcept { return micro_.next_position; }

 private:
  std::string accumulate_gradients(comm::StepVote& vote);
  [[noreturn]] void fail_not_finite(const comm::StepVerdict& verdict, double gradient_norm);

  model::Model& model_;
  comm::Communicator& communicator_;
  comm::GradientReducer& reducer_;
  model::OptimizerOptions optimizer_;
  const model::LearningRateSchedule& schedule_;
  std::int64_t accumulate_;
  NextMicroBatch next_;
  model::GradientReady ready_;
  std::int64_t steps_done_ = 0;
  MicroBatch micro_;
  TimeSplit time_;
  std::string not_finite_;  ///< where an early micro-step of a step that is going to fail went wrong
};

}  // namespace lockstep::app
