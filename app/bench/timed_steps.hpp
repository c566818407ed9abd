/// \file
/// Training steps that are made to be timed: what bench step and bench scale share.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "app/bench/scaling.hpp"
#include "app/engine/engine.hpp"
#include "app/engine/trainer.hpp"
#include "app/options/bench_options.hpp"
#include "app/plan/plan.hpp"
#include "comm/communicator.hpp"
#include "io/datasets/prefetcher.hpp"

namespace lockstep::app {

class ResidentInput;

class TimedSteps {
 public:
  /// Collective. Prepares data or made-up samples, network, engine and trainer; makes no step. Throws UsageError and
  /// comm::AgreedError, alike on every rank. `deadline`: of the data's files. The references must outlive the object.
  TimedSteps(comm::MpiSession& session, comm::Communicator& communicator, const Place& place, const StepWork& work,
             io::IoDeadline& deadline);
  ~TimedSteps();
  TimedSteps(const TimedSteps&) = delete;
  TimedSteps& operator=(const TimedSteps&) = delete;

  /// Collective. One step, as in training; seconds of this rank.
  RankStep step();
  /// Of all ranks, in all steps so far.
  double samples() const noexcept { return samples_; }
  /// Since construction, on this rank; the total is that of the steps.
  TimeSplit time() const;
  /// Seconds that the sums of the steps took on this rank, hidden or not; negative: not known.
  double communication_seconds() const;
  /// Collective. Seconds to sum all gradients as a step does (where ranks share the update: and to bring each other the
  /// weights), with nothing to hide it behind: the median of so many times, each the slowest rank's. Gradients are not
  /// what they were.
  double time_gradient_sum(int times);

  /// Collective: this rank's times, of equal number on all ranks, beside those of the others.
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
  std::unique_ptr<Trainer::Parts> parts_;
  std::unique_ptr<Trainer> trainer_;
  double samples_ = 0, seconds_ = 0, busy_ = 0;
};

/// Collective: data or made-up samples, and the network, without memory for it. `deadline` outlives the data.
/// Throws UsageError and comm::AgreedError, alike on every rank.
Workload prepare_steps(comm::Communicator& communicator, const StepWork& work, io::IoDeadline& deadline);

}  // namespace lockstep::app
