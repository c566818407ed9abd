/// \file
/// The plan of a job: everything that follows from options, data and world, decided once and before any memory is
/// allocated. A plan does not change, except for the run's starting point (begin_at()).
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "app/options/train_options.hpp"
#include "app/plan/origin.hpp"
#include "app/plan/placement.hpp"
#include "app/plan/workload.hpp"
#include "comm/communicator.hpp"
#include "comm/gradient_reducer.hpp"
#include "io/checkpoints/checkpoint.hpp"
#include "model/slice.hpp"
#include "model/training/schedule.hpp"

namespace lockstep::app {

/// Groups of neighbouring ranks that sum gradients in every step; all ranks synchronise only at intervals (--agree
/// local).
class Islands {
 public:
  /// `first`: the first rank of each island, ascending from 0; `ranks` > 0: their total number.
  Islands(std::vector<int> first, int ranks) : first_(std::move(first)), ranks_(ranks) {}
  /// Islands of sizes as equal as possible; 1 <= count <= ranks.
  static Islands equal(int count, int ranks);

  int count() const noexcept { return static_cast<int>(first_.size()); }
  int first_rank(int island) const { return first_.at(static_cast<std::size_t>(island)); }
  /// One past the island's last rank.
  int end_rank(int island) const { return island + 1 < count() ? first_rank(island + 1) : ranks_; }
  /// The island of a rank.
  int of(int rank) const;

 private:
  std::vector<int> first_;
  int ranks_;
};

/// Workers and servers, in modes where servers keep the parameters (--agree quorum, --agree async).
struct Servers {
  int workers = 1;
  int count = 1;        ///< number of servers: each keeps one of as many equal contiguous parts
  bool shared = false;  ///< server k is a thread beside worker k; otherwise it is the only task of rank workers + k

  bool trains(int rank) const noexcept { return rank < workers; }
  int rank_of(int server) const noexcept { return shared ? server : workers + server; }
  /// The server on this rank; -1: none.
  int on(int rank) const noexcept {
    const int server = shared ? rank : rank - workers;
    return server >= 0 && server < count ? server : -1;
  }
};
/// nullopt without servers. Throws UsageError if the options contradict the number of ranks.
std::optional<Servers> find_servers(const TrainOptions& options, int ranks);

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
  std::optional<Islands> islands;  ///< groups of ranks with local steps; nullopt: all ranks act together
  std::optional<Servers> servers;  ///< nullopt: no servers
  std::filesystem::path replay;    ///< order of the servers' gradients to repeat; "": as they arrive
  model::MemoryPlan memory;        ///< memory of the rank with the largest need
  io::TrainingRecord record;       ///< content of a checkpoint about the run, except its progress
};

/// Collective: the only function that turns options into a plan. A resumed run keeps the options of its checkpoint,
/// unless the user gives others (going_on()). Throws UsageError and comm::AgreedError, alike on every rank.
Plan make_plan(comm::Communicator& communicator, const TrainOptions& options, const Origin& origin);
/// The rest of the planning once workload and place are known; no communication. Throws UsageError.
Plan complete_plan(const comm::Communicator& communicator, const TrainOptions& options, Workload workload,
                   const Place& place, std::optional<Islands> islands = {}, const Standing& from = {});
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

/// The slices that `rank` of `ranks` owns, its shard of each bucket; empty if every rank updates everything.
std::vector<model::Slice> owned_ranges(const Plan& plan, int rank, int ranks);
/// The part of an arena that a server keeps.
comm::Slice served_part(const Servers& servers, std::size_t elements, int server);
/// Number of ranks, out of `ranks`, that share the samples of a step.
int training_ranks(const Plan& plan, int ranks);
/// Like Plan::memory, with `batch` samples at once.
model::MemoryPlan memory_with(const Plan& plan, const comm::Communicator& communicator, std::int64_t batch);

/// The plan as text for rank 0; --dry-run ends after it. Layers, parameters, memory per rank, FLOPs per step,
/// optimiser, learning rate, loss, input, decisions by the network's defaults, buckets, the amount of work.
std::string format_plan(const Plan& plan, const comm::Communicator& communicator);

/// A layer in the backward pass.
struct BackwardLayer {
  model::LayerPlan layer;
  std::vector<std::size_t> slice_ends;  ///< ends of its gradient slices in the arena, elements, ascending; may be empty
};

/// Layers in the order of the backward pass: after a layer everything up to its last slice end is final. The last entry
/// stands for the gradients that only the whole pass completes: the statistics.
std::vector<BackwardLayer> backward_plan(const model::Network& network);

/// Collective. Writes the same to a file, one JSON object per line. Throws comm::AgreedError if it cannot be written.
void write_backward_plan(comm::Communicator& communicator, const std::filesystem::path& file,
                         const model::Network& network);

}  // namespace lockstep::app
