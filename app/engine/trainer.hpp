/// \file
/// One synchronous SGD step over all ranks, or over those of an island: what train and bench step share.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <optional>
#include <string>
#include <vector>

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
  /// Who makes the update of a step.
  enum class Update {
    here,
    elsewhere,          ///< servers, of each gradient: this rank adds the L2 gradient
    elsewhere_of_sums,  ///< servers, of sums of gradients: they do
  };
  /// What takes part in a step; all of it must outlive the trainer.
  struct Parts {
    model::Backend& backend;
    model::Training& training;
    comm::Communicator& communicator;  ///< between host memories: for errors and messages
    /// Between where the gradients live: for the status, and inside `reducer`. On a host it is `communicator`.
    comm::Communicator& gradient_communicator;
    comm::GradientReducer& reducer;
    /// Where a step has the same bits at any number of ranks: its micro-steps are this rank's terms.
    const comm::SummationTree* tree = nullptr;
    Update update = Update::here;  ///< of the weights
  };
  /// A step has `accumulate` micro-steps. On a device `next` is called one micro-batch ahead.
  Trainer(const Parts& parts, const model::LearningRateSchedule& schedule, std::int64_t accumulate,
          NextMicroBatch next);

  /// What this rank wants of the next step.
  struct Request {
    bool stop = false;
    bool save = false;      ///< a checkpoint after it, as a signal asks
    bool save_due = false;  ///< likewise, as the clock or the run folder asks
    std::string error;      ///< not empty: this rank failed between steps (a full disk …)
  };
  struct Result {
    StepFigures figures;
    double divisor = 0;  ///< samples that the loss of the last micro-step was the mean over
    int stop_requests = 0;
    int save_requests = 0;
    bool save_due = false;
  };

  /// Next batch, forward, backward (reducing as gradients appear), update. Collective. Throws comm::AgreedError,
  /// without an update, when a rank failed or a number is not finite.
  Result step(const Request& request);

  std::int64_t steps_done() const noexcept { return steps_done_; }
  /// Where a resumed run goes on: what epoch() and next_position() say until the first step.
  /// The optimiser's state began after step `optimizer_since`.
  void start_at(std::int64_t steps_done, std::int64_t epoch, std::int64_t position,
                std::int64_t optimizer_since = 0) noexcept {
    steps_done_ = steps_done;
    optimizer_since_ = optimizer_since;
    place_ = {.epoch = epoch, .position = position};
  }
  /// Seconds that the caller has waited for peers between steps.
  void add_communication(double seconds) noexcept { time_.communication += seconds; }
  /// Input, compute and communication since construction; the total is the caller's.
  const TimeSplit& time() const noexcept { return time_; }
  /// After steps_done().
  std::int64_t epoch() const noexcept { return place_.epoch; }
  std::int64_t next_position() const noexcept { return place_.position; }

 private:
  struct MicroStep {
    std::int32_t index;  ///< small: work that captures it allocates nothing
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
  std::string place_not_finite() const;
  StepOutcome wait(const RankStatus& own);
  void account(double whole, double input, double exposed);
  [[noreturn]] void fail_not_finite(const StepOutcome& outcome, double gradient_norm);

  Parts parts_;
  const model::LearningRateSchedule& schedule_;
  std::int64_t accumulate_;
  StagedInput input_;
  model::GradientReady reduce_;   ///< gradients, as they become final
  model::PartUpdated send_part_;  ///< of the weights, where ranks share the update
  std::int64_t steps_done_ = 0, optimizer_since_ = 0;
  DataPlace place_;                        ///< after steps_done_
  std::pmr::vector<double> micro_losses_;  ///< on a device: sums of the losses up to each micro-step but the last
  /// With a tree: LossSums of each term, over all ranks.
  std::optional<model::Scalars> term_losses_;
  std::string not_finite_;  ///< where an early micro-step of a step that is going to fail went wrong
  TimeSplit time_;
};

}  // namespace lockstep::app
