/// \file
/// The plan of a job: all decisions that follow from options, data and world. They are made once, before any memory is
/// allocated. A plan does not change, except for the starting point of the run (begin_at()).
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
  TrainOptions settings;  ///< the options, with decisions in place of automatic values
  Workload workload;
  Place place;  ///< place of this rank
  model::ScheduleClock clock;
  model::LearningRateSchedule schedule;
  comm::BucketRule bucket_rule;
  std::vector<comm::Slice> buckets;  ///< buckets of gradients
  /// The ranks share the optimiser (--shard-optimizer). Each rank receives the sum of its shard of every bucket and
  /// updates those weights with its part of the optimiser's state; then the ranks exchange the new weights. The bytes
  /// on the wire are those of an all-reduce; each of p ranks holds 1/p of the state and does 1/p of the update. Always
  /// false in a world of one.
  bool shards_optimizer = false;
  int checkpoint_writers = 1;  ///< ranks that write a checkpoint together
  /// Order of additions that gives the same bits at any number of ranks (--reproducible).
  std::optional<comm::SummationTree> tree;
  std::shared_ptr<const Agreement> agreement;  ///< the mode of agreement
  std::filesystem::path replay;  ///< file with the order of gradients that servers repeat; "": as they arrive
  model::MemoryPlan memory;      ///< memory of the rank that needs most
  io::TrainingRecord record;     ///< a checkpoint's record of the run, without its progress
};

/// Collective. Makes a plan from options; no other function does. A resumed run keeps the options of its checkpoint
/// unless the user gives others (going_on()). Throws UsageError and comm::ConsensusError, the same on every rank.
Plan make_plan(comm::Communicator& communicator, const TrainOptions& options, const Origin& origin);
/// Completes a plan once workload and place are known. Does not communicate. `agreement`: nullptr means the mode in the
/// options. Throws UsageError.
Plan complete_plan(const comm::Communicator& communicator, Workload workload, const Place& place,
                   std::shared_ptr<const Agreement> agreement = nullptr, const Standing& from = {});
/// Moves a plan to another starting point: to a newer checkpoint, or after a roll-back. Adjusts the amount of work and
/// the schedule. Throws UsageError.
void begin_at(Plan& plan, const Origin& origin);

// The steps of make_plan, for callers that report the failing step or need no whole plan. Collective.

/// Inspects files of other programs on rank 0 while the other ranks wait. Throws the exception of rank 0 on all ranks,
/// and UsageError if the options name no data.
void inspect_job_data(comm::Communicator& communicator, const TrainOptions& options);
/// Opens the data on all ranks, builds the network, and decides how numbers are standardised (standardization.hpp).
/// Call after inspect_job_data().
Workload open_workload(comm::Communicator& communicator, const TrainOptions& options,
                       io::IoDeadline* deadline = nullptr, const Origin& origin = {});
/// Returns the options of a run with this starting point. Options that the user does not give come from its checkpoint.
/// Throws UsageError.
TrainOptions options_of_start(const TrainOptions& options, const Origin& origin);
/// Returns the place of this rank. A plan that is not executed (--dry-run) may get an imaginary GPU: see plan_place().
Place choose_place(comm::Communicator& communicator, const TrainOptions& options);

model::LearningRateSchedule learning_rate_schedule(const TrainOptions& options, const WorkPlan& work,
                                                   const model::ScheduleClock& clock = {});

/// Returns the slices that `rank` owns: its shard of each bucket; empty if every rank updates all weights.
std::vector<model::Slice> owned_ranges(const Plan& plan, int rank);
/// Returns Plan::memory for `batch` samples at once.
model::MemoryPlan memory_with(const Plan& plan, const comm::Communicator& communicator, std::int64_t batch);

/// Returns the plan as text, which rank 0 prints; --dry-run ends after it. Contains layers, parameters, memory per
/// rank, FLOPs per step, optimiser, learning rate, loss, input, decisions by the network's defaults, buckets, and the
/// amount of work.
std::string format_plan(const Plan& plan, const comm::Communicator& communicator);

/// An operation of the backward pass.
struct BackwardLayer {
  model::LayerPlan layer;
  std::vector<std::size_t> slice_ends;  ///< ends of its gradient slices in the arena, elements, ascending; may be empty
};

/// Returns the operations in the order of the backward pass. After an operation, all gradients up to its last slice end
/// are final. A gradient that follows a slice which a later operation completes is therefore listed with that later
/// operation. The last entry also lists slices that are final only after the whole pass: the statistics.
std::vector<BackwardLayer> backward_plan(const model::Network& network);

/// Collective. Writes backward_plan() to a file, one JSON object per line. Throws comm::ConsensusError if the file
/// cannot be written.
void write_backward_plan(comm::Communicator& communicator, const std::filesystem::path& file,
                         const model::Network& network);

}  // namespace lockstep::app
