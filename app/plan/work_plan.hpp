/// \file
/// The amount of work of a job: the size of a step, the number of steps, and each rank's share of them.
#pragma once

#include <cstdint>

#include "app/options/train_options.hpp"
#include "model/network.hpp"

namespace lockstep::app {

/// Returns a / b, rounded up.
constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) noexcept { return (a + b - 1) / b; }

/// An event that recurs after each step for which step + shift is a multiple of `steps`.
struct Interval {
  std::int64_t steps = 0;  ///< 0: never
  std::int64_t shift = 0;
  bool ends_epochs = false;  ///< the event is the end of each epoch
  /// True if the event occurs after one of the steps before + 1 to after.
  bool lies_between(std::int64_t before, std::int64_t after) const noexcept {
    return steps > 0 && (after + shift) / steps > (before + shift) / steps;
  }
  /// Returns the step of the next event after `done` steps.
  std::int64_t next(std::int64_t done) const noexcept { return ((done + shift) / steps + 1) * steps - shift; }
};

/// Amount of work of a job.
struct WorkPlan {
  std::int64_t global_batch = 1;  ///< samples per step, over all ranks and micro-steps
  std::int64_t accumulate = 1;    ///< micro-steps per step; with virtual ranks: the maximum over ranks
  /// > 0: number V of parts of a step, which are computed separately (--reproducible). V does not depend on the number
  /// of ranks. Rank r of R computes parts [r V / R, (r + 1) V / R).
  std::int64_t virtual_ranks = 0;
  std::int64_t largest_part = 1;    ///< largest number of samples of one rank in one micro-step
  std::int64_t most_sequences = 1;  ///< largest number of sequences of one rank, in all its micro-steps
  std::int64_t epoch_samples = 1;   ///< positions per epoch
  std::int64_t steps_per_epoch = 1;
  double epochs = 1;             ///< length of the job; unused if the length is given in steps
  std::int64_t given_steps = 0;  ///< > 0: length of the job in steps
  std::int64_t total_steps = 1;
  /// Not 0 if earlier steps had another global batch. After step n, (n + epoch_shift) / steps_per_epoch epochs are
  /// complete.
  std::int64_t epoch_shift = 0;
  Interval evaluate_every;    ///< before the end
  Interval checkpoint_every;  ///< interval in steps, before the end
  double epochs_after(std::int64_t steps) const noexcept {
    return static_cast<double>(steps + epoch_shift) / static_cast<double>(steps_per_epoch);
  }
};
/// A position in the data: the beginning of a step, or the end of an epoch.
struct DataCursor {
  std::int64_t epoch = 0, position = 0;
};
/// Returns the position `steps` steps after `from`, as in the MicroBatch of a step.
DataCursor cursor_after(const WorkPlan& work, DataCursor from, std::int64_t steps);

/// The sequences of one rank among those of the global batch; the same in every step.
struct SequenceShare {
  std::int64_t all = 0, first = 0, count = 0;
};
/// One rank's share of a step.
struct RankShare {
  std::int64_t micro_steps = 1;
  std::int64_t first_virtual_rank = 0;  ///< with virtual ranks, each micro-step computes one of them
  SequenceShare sequences;
};
RankShare share_of(const WorkPlan& work, int rank, int world);
/// Returns the number of steps for `samples` samples. `stateful`: the network is recurrent.
std::int64_t steps_per_epoch(std::int64_t samples, std::int64_t global_batch, bool stateful);
/// The facts about a job that decide its amount of work together with the options.
struct WorkFacts {
  std::int64_t samples = 1;   ///< training samples
  int world = 1;              ///< ranks that train
  bool reads_tokens = false;  ///< samples are windows of tokens
  bool has_batch = false;     ///< the user or the network chose the batch; otherwise small data get smaller steps
  const model::NetworkKind* recurrent = nullptr;  ///< kind of a network whose sequences continue from batch to batch
};
/// Plans the amount of work, without validations and checkpoints before the end. Throws UsageError if batches of a
/// recurrent network are wider than the data.
WorkPlan work_plan(const WorkOptions& options, const WorkFacts& facts);
/// Adds the validations and checkpoints before the end.
void add_intervals(const ValidationOptions& validation, const CheckpointEvery& checkpoint, WorkPlan& work);
/// Adjusts the work of a run that continues at `cursor` after `step` steps, which may have had other global batches.
/// The run still ends after its number of epochs.
void go_on_at(WorkPlan& work, std::int64_t step, DataCursor cursor);

}  // namespace lockstep::app
