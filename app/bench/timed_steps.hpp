/// \file
/// Training steps for timing, shared by bench step and bench scale.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "app/bench/bench_options.hpp"
#include "app/bench/scaling.hpp"
#include "app/engine/engine.hpp"
#include "app/engine/trainer.hpp"
#include "app/plan/plan.hpp"
#include "comm/communicator.hpp"
#include "io/datasets/prefetcher.hpp"

namespace lockstep::app {

class ResidentInput;

class TimedSteps {
 public:
  /// Collective. Prepares data or synthetic samples, network, engine and trainer; makes no step. Throws UsageError and
  /// comm::ConsensusError, the same on every rank. `deadline` limits operations on data files. The referenced objects
  /// must outlive this one.
  TimedSteps(comm::MpiSession& session, comm::Communicator& communicator, const Place& place, const StepWork& work,
             io::IoDeadline& deadline);
  ~TimedSteps();
  TimedSteps(const TimedSteps&) = delete;
  TimedSteps& operator=(const TimedSteps&) = delete;

  /// Collective. Makes a step as in training; returns its times on this rank.
  RankStep step();
  /// Number of samples of all ranks in all steps so far.
  double samples() const noexcept { return samples_; }
  /// Times on this rank since construction; the total is the time of the steps.
  TimeSplit time() const;
  /// Seconds of the steps' all-reduces on this rank, exposed or hidden; negative: unknown.
  double communication_seconds() const;
  /// Collective. Returns the seconds to sum all gradients as in a step (and, if ranks share the update, to exchange the
  /// weights) without concurrent computation: the median over `times` sums, each timed on its slowest rank. Overwrites
  /// the gradients.
  double time_gradient_sum(int times);

  /// Collective: returns the times of all ranks. All ranks pass equally many.
  StepTimes gather(std::span<const RankStep> own);

  Engine& engine() noexcept { return *engine_; }
  const Plan& plan() const noexcept { return plan_; }
  const Workload& workload() const noexcept { return plan_.workload; }

 private:
  comm::Communicator& communicator_;
  const StepWork& work_;
  const Plan plan_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<ResidentInput> resident_;
  std::unique_ptr<io::Prefetcher> prefetcher_;
  std::unique_ptr<BatchFeed> feed_;
  std::unique_ptr<Trainer::Context> context_;
  std::unique_ptr<Trainer> trainer_;
  double samples_ = 0, seconds_ = 0, busy_ = 0;
};

/// Collective: prepares data or synthetic samples, and the network without its memory. `deadline` must outlive the
/// data. Throws UsageError and comm::ConsensusError, the same on every rank.
Workload prepare_steps(comm::Communicator& communicator, const StepWork& work, io::IoDeadline& deadline);

}  // namespace lockstep::app
