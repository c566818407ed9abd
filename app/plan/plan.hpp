/// \file
/// The plan of a job: everything that follows from options, data and world, decided once and before any memory is
/// allocated. A plan does not change, except for the run's starting point (begin_at()).
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/agree/agreement.hpp"
#include "app/options/train_options.hpp"
#include "app/place/placement.hpp"
#include "app/plan/origin.hpp"
#include "app/plan/workload.hpp"
#include "comm/communicator.hpp"
#include "comm/gradient_reducer.hpp"
#include "io/checkpoints/checkpoint.hpp"
#include "model/slice.hpp"
#include "model/training/schedule.hpp"

namespace lockstep::app {

struct Plan {
  TrainOptions settings;  ///< the options with automatic values replaced by the decisions
  Workload workload;
  Place place;  ///< place of this rank
  model::ScheduleClock clock;
  model::LearningRateSchedule schedule;
  comm::BucketRule bucket_rule;
  std::vector<comm::Slice> buckets;  ///< buckets of gradients
  /// The ranks share the optimiser (--shard-optimizer). Each rank receives the sum of its own shard of every bucket,
  /// updates those weights with its own share of the optimiser's state, and the ranks exchange the new weights. The
  /// bytes on the wire are those of an all-reduce; state and work of the update are 1/p. Always false in a world of
  /// one.
  bool shards_optimizer = false;
  int checkpoint_writers = 1;  ///< ranks that write a checkpoint together
  /// Order of additions that gives the same bits at any number of ranks (--reproducible).
  std::optional<comm::SummationTree> tree;
  std::shared_ptr<const Agreement> agreement;  ///< the mode of agreement
  std::filesystem::path replay;                ///< order of the servers' gradients to repeat; "": as they arrive
  model::MemoryPlan memory;                    ///< memory of the rank with the largest need
  io::TrainingRecord record;                   ///< content of a checkpoint about the run, except its progress
};

/// Collective: the only function that turns options into a plan. A resumed run keeps the options of its checkpoint,
/// unless the user gives others (going_on()). Throws UsageError and comm::ConsensusError, alike on every rank.
Plan make_plan(comm::Communicator& communicator, const TrainOptions& options, const Origin& origin);
/// The rest of the planning once workload and place are known; no communication. `agreement`: nullptr for that of the
/// options. Throws UsageError.
Plan complete_plan(const comm::Communicator& communicator, Workload workload, const Place& place,
                   std::shared_ptr<const Agreement> agreement = nullptr, const Standing& from = {});
/// Moves the plan of a run to another starting point: to a newer checkpoint, or after a roll-back. The amount of work
/// and the schedule follow. Throws UsageError.
void begin_at(Plan& plan, const Origin& origin);

// The steps of make_plan, for callers that report the failing step or need no whole plan. Collective.

/// Rank 0 inspects data made by other programs while the others wait. Throws rank 0's exception on all ranks, and
/// UsageError if the options name no data.
void inspect_job_data(comm::Communicator& communicator, const TrainOptions& options);
/// Opens the data on all ranks, builds the network, and decides how numbers are standardised (standardization.hpp).
/// Call after inspect_job_data().
Workload open_workload(comm::Communicator& communicator, const TrainOptions& options,
                       io::IoDeadline* deadline = nullptr, const Origin& origin = {});
/// The options of a run with this starting point: options that the user does not give come from its checkpoint. Throws
/// UsageError.
TrainOptions options_of_start(const TrainOptions& options, const Origin& origin);
/// The place of this rank; imagined for a plan that is not executed (--dry-run).
Place choose_place(comm::Communicator& communicator, const TrainOptions& options);

model::LearningRateSchedule learning_rate_schedule(const TrainOptions& options, const WorkPlan& work,
                                                   const model::ScheduleClock& clock = {});

/// The slices that `rank` owns, its shard of each bucket; empty if every rank updates everything.
std::vector<model::Slice> owned_ranges(const Plan& plan, int rank);
/// Like Plan::memory, with `batch` samples at once.
model::MemoryPlan memory_with(const Plan& plan, const comm::Communicator& communicator, std::int64_t batch);

/// The plan as text for rank 0; --dry-run ends after it. Layers, parameters, memory per rank, FLOPs per step,
/// optimiser, learning rate, loss, input, decisions by the network's defaults, buckets, the amount of work.
std::string format_plan(const Plan& plan, const comm::Communicator& communicator);

/// An operation in the backward pass.
struct BackwardLayer {
  model::LayerPlan layer;
  std::vector<std::size_t> slice_ends;  ///< ends of its gradient slices in the arena, elements, ascending; may be empty
};

/// Operations in the order of the backward pass: after one everything up to its last slice end is final. A gradient
/// that lies behind one which a later operation completes is the later one's. The last entry stands for what only the
/// whole pass completes, too: the statistics.
std::vector<BackwardLayer> backward_plan(const model::Network& network);

/// Collective. Writes the same to a file, one JSON object per line. Throws comm::ConsensusError if it cannot be
/// written.
void write_backward_plan(comm::Communicator& communicator, const std::filesystem::path& file,
                         const model::Network& network);

}  // namespace lockstep::app
