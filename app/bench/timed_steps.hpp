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
  /// comm::ConsensusError, alike on every rank. `deadline`: of the data's files. The references must outlive the
  /// object.
  TimedSteps(comm::MpiSession& session, comm::Communicator& communicator, const Place& place, const StepWork& work,
             io::IoDeadline& deadline);
  ~TimedSteps();
  TimedSteps(const TimedSteps&) = delete;
  TimedSteps& operator=(const TimedSteps&) = delete;

  /// Collective. One step, as in training; returns seconds on this rank.
  RankStep step();
  /// Samples of all ranks, in all steps so far.
  double samples() const noexcept { return samples_; }
  /// Times since construction, on this rank; the total is that of the steps.
  TimeSplit time() const;
  /// Seconds of the steps' sums on this rank, hidden or not; negative: unknown.
  double communication_seconds() const;
  /// Collective. Seconds to sum all gradients as in a step (and, if ranks share the update, to exchange the weights),
  /// with nothing to hide it behind: the median over `times` sums, each on its slowest rank. Overwrites the gradients.
  double time_gradient_sum(int times);

  /// Collective: the times of all ranks; all have equally many.
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

/// Collective: data or synthetic samples, and the network, without its memory. `deadline` outlives the data. Throws
/// UsageError and comm::ConsensusError, alike on every rank.
Workload prepare_steps(comm::Communicator& communicator, const StepWork& work, io::IoDeadline& deadline);

}  // namespace lockstep::app
