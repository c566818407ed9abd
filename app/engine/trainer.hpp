/// \file
/// One synchronous SGD step over all ranks, or over the ranks of an island. train and bench step share it.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <optional>
#include <string>
#include <vector>

#include "app/agree/agreement.hpp"
#include "app/engine/micro_batches.hpp"
#include "app/engine/step_status.hpp"
#include "app/report/step_figures.hpp"
#include "comm/communicator.hpp"
#include "comm/gradient_reducer.hpp"
#include "model/backend.hpp"
#include "model/state/scalars.hpp"
#include "model/training/schedule.hpp"
#include "model/training/training.hpp"

namespace lockstep::app {

class Trainer {
 public:
  /// References for a step; all must outlive the trainer.
  struct Context {
    model::Backend& backend;
    model::Training& training;
    comm::Communicator& communicator;  ///< between host memories: for errors and messages
    /// Connects the memories of the gradients: for the status, and inside `reducer`. On a host it is `communicator`.
    comm::Communicator& gradient_communicator;
    comm::GradientReducer& reducer;
    /// Order of summation that gives the same bits at any number of ranks; the micro-steps are this rank's terms.
    /// nullptr: any order.
    const comm::SummationTree* tree = nullptr;
    bool updates = true;        ///< true: a step ends with the update of the weights; false: servers make it
    bool sums_further = false;  ///< servers add the gradients of several ranks, then add L2
  };
  /// A step has `accumulate` micro-steps. On a device `next` is called one micro-batch ahead.
  Trainer(const Context& context, const model::LearningRateSchedule& schedule, std::int64_t accumulate,
          NextMicroBatch next);

  using Request = StepRequest;
  using Result = StepResult;

  /// Makes a step: next batch, forward, backward (reduces gradients as they become final), update. Collective. Throws
  /// comm::ConsensusError, without an update, if a rank failed or a number is not finite.
  Result step(const Request& request);

  std::int64_t steps_done() const noexcept { return steps_done_; }
  /// Sets the starting point of a resumed run, which epoch() and next_position() return until the first step.
  void start_at(std::int64_t steps_done, std::int64_t epoch, std::int64_t position) noexcept {
    steps_done_ = steps_done;
    cursor_ = {.epoch = epoch, .position = position};
  }
  /// Sets the number of updates that the optimiser's state has made by now. It begins as that of the steps.
  void set_updates(std::int64_t updates) noexcept { updates_ahead_ = updates - steps_done_; }
  /// Adds seconds that the caller has waited for peers between steps.
  void add_communication(double seconds) noexcept { time_.communication += seconds; }
  /// Seconds of input, compute and communication since construction; the caller measures the total.
  const TimeSplit& time() const noexcept { return time_; }
  /// Epoch after steps_done().
  std::int64_t epoch() const noexcept { return cursor_.epoch; }
  std::int64_t next_position() const noexcept { return cursor_.position; }

 private:
  struct MicroStep {
    std::int32_t index;  ///< small, so that work that captures it allocates nothing
    bool is_first, is_last;
  };
  RankStatus enqueue(const Request& request);
  template <class Work>
  void replay(MicroStep at, const Work& work);
  model::Model::Forward forward(MicroStep at);
  void backward(const model::Model::Forward& forward, MicroStep at);
  void prepare_update(RankStatus& own);
  void update();
  model::Tensor loss_sums(std::int64_t micro) const;
  void report_losses();
  StepOutcome add_term_losses(StepOutcome outcome) const;
  void check_loss(std::int64_t micro);
  std::string source_of_not_finite() const;
  StepOutcome wait(const RankStatus& own);
  void account(double whole, double input, double exposed);
  [[noreturn]] void fail_not_finite(const StepOutcome& outcome, double gradient_norm);

  Context context_;
  const model::LearningRateSchedule& schedule_;
  std::int64_t accumulate_;
  StagedInput input_;
  model::GradientReady reduce_;                      ///< reduces gradients as they become final
  model::PartUpdated send_part_;                     ///< sends updated weights, if ranks share the update
  std::int64_t steps_done_ = 0, updates_ahead_ = 0;  ///< updates by the optimiser's state, less steps
  DataCursor cursor_;                                ///< position after steps_done_
  /// On a device: running sums of the losses after each micro-step but the last.
  std::pmr::vector<double> micro_losses_;
  /// With a tree: LossSums of each term, over all ranks.
  std::optional<model::Scalars> term_losses_;
  std::string not_finite_;  ///< source of the first non-finite number in an early micro-step of a failing step
  TimeSplit time_;
};

}  // namespace lockstep::app
