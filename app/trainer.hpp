/// \file
/// One synchronous SGD step over all ranks: what train and bench step share.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory_resource>
#include <optional>
#include <string>
#include <vector>

#include "app/report.hpp"
#include "app/workload.hpp"
#include "comm/agreement.hpp"
#include "comm/communicator.hpp"
#include "comm/gradient_reducer.hpp"
#include "comm/reduction.hpp"
#include "io/prefetcher.hpp"
#include "model/backend.hpp"
#include "model/model.hpp"
#include "model/schedule.hpp"

namespace lockstep::app {

/// This rank's share of a micro-step, and where the step stands in the data.
struct MicroBatch {
  model::Batch batch;
  std::int64_t step_count = 0;  ///< samples of the whole step: the divisor of the loss
  std::int64_t epoch = 0;
  std::int64_t next_position = 0;  ///< in the epoch, after this step
  double waited = 0;               ///< seconds until the reader had it
};

/// Micro-batches from the reading thread, each sample with its key.
class BatchFeed {
 public:
  struct Options {
    model::ElementType x_type = model::ElementType::float32;
    std::uint64_t seed = 1;
    bool streams = false;                         ///< a new epoch begins the lanes anew
    std::int64_t most = 1;                        ///< samples of a micro-batch
    std::pmr::memory_resource* memory = nullptr;  ///< of the host, for the keys
  };
  /// `prefetcher` must outlive the feed.
  BatchFeed(io::Prefetcher& prefetcher, const Options& options);
  MicroBatch next();

 private:
  io::Prefetcher& prefetcher_;
  Options options_;
  std::pmr::vector<std::uint64_t> keys_;
};

BatchFeed::Options feed_options(const TrainOptions& options, const Workload& workload, model::Backend& backend);

class Trainer {
 public:
  /// Delivers the next micro-batch; called `accumulate` times per step. May throw: the step then fails on all ranks. On
  /// a device it is called one micro-batch ahead, while the one before is worked on.
  using NextMicroBatch = std::function<MicroBatch()>;

  /// What takes part in a step; all of it must outlive the trainer.
  struct Parts {
    model::Backend& backend;
    model::Model& model;
    comm::Communicator& communicator;  ///< for errors and messages
    comm::Reduction& reduction;        ///< for the ballot; the gradients' own is inside `reducer`
    comm::GradientReducer& reducer;
  };
  Trainer(const Parts& parts, const model::OptimizerOptions& optimizer, const model::LearningRateSchedule& schedule,
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
  /// without an update, when a rank failed or a number is not finite.
  Result step(const Say& say);

  std::int64_t steps_done() const noexcept { return steps_done_; }
  /// Where a resumed run goes on: what epoch() and next_position() say until the first step.
  void start_at(std::int64_t steps_done, std::int64_t epoch, std::int64_t position) noexcept {
    steps_done_ = steps_done;
    micro_.epoch = epoch;
    micro_.next_position = position;
  }
  /// Input, compute and communication since construction; the total is the caller's.
  const TimeSplit& time() const noexcept { return time_; }
  std::int64_t epoch() const noexcept { return micro_.epoch; }
  std::int64_t next_position() const noexcept { return micro_.next_position; }

 private:
  MicroBatch fetch();
  void take_next();
  void look_ahead();
  void micro_step(bool first, bool last);
  void conclude();
  std::string work(const Say& say, comm::StepVote& vote);
  void account(double whole, double input, double exposed);
  [[noreturn]] void fail_not_finite(const comm::StepVerdict& verdict, double gradient_norm);

  Parts parts_;
  model::OptimizerOptions optimizer_;
  const model::LearningRateSchedule& schedule_;
  std::int64_t accumulate_;
  NextMicroBatch next_;
  model::GradientReady ready_;
  model::PartUpdated updated_;  ///< where ranks share the update: their parts of the weights go out as they are made
  std::int64_t steps_done_ = 0;
  MicroBatch micro_;
  std::optional<MicroBatch> ahead_;  ///< fetched and staged already
  std::exception_ptr ahead_error_;   ///< what fetching it ended in: the next step's to meet
  std::string not_finite_;           ///< where an early micro-step of a step that is going to fail went wrong
  double input_seconds_ = 0;         ///< waited for batches
  TimeSplit time_;
};

}  // namespace lockstep::app
