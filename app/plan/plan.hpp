/// \file
/// What a job is going to do: everything that follows from options, data and world, decided once and before any memory
/// is taken. Nobody changes a plan, but for where the run begins (begin_at).
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "app/options/train_options.hpp"
#include "app/plan/placement.hpp"
#include "app/plan/workload.hpp"
#include "comm/communicator.hpp"
#include "comm/gradient_reducer.hpp"
#include "io/checkpoints/checkpoint.hpp"
#include "model/slice.hpp"
#include "model/training/schedule.hpp"

namespace lockstep::app {

/// Groups of neighbouring ranks that agree in every step, where all ranks do so only now and then (--agree local).
class Islands {
 public:
  /// `first`: the first rank of each island, ascending from 0; `ranks` > 0 of all.
  Islands(std::vector<int> first, int ranks) : first_(std::move(first)), ranks_(ranks) {}
  /// As equal as can be; 1 <= count <= ranks.
  static Islands equal(int count, int ranks);

  int count() const noexcept { return static_cast<int>(first_.size()); }
  int first_rank(int island) const { return first_.at(static_cast<std::size_t>(island)); }
  /// Behind the last rank.
  int end_rank(int island) const { return island + 1 < count() ? first_rank(island + 1) : ranks_; }
  /// The one of a rank.
  int of(int rank) const;

 private:
  std::vector<int> first_;
  int ranks_;
};

/// Who trains and who keeps the parameters, where servers do (--agree quorum, --agree async).
struct Servers {
  int workers = 1;
  int count = 1;        ///< of servers: each keeps one of as many equal contiguous parts
  bool shared = false;  ///< server k is a thread beside worker k; else it has rank workers + k for itself

  bool trains(int rank) const noexcept { return rank < workers; }
  int rank_of(int server) const noexcept { return shared ? server : workers + server; }
  /// The one on this rank; -1: none.
  int on(int rank) const noexcept {
    const int server = shared ? rank : rank - workers;
    return server >= 0 && server < count ? server : -1;
  }
};
/// Of so many ranks; nothing where the options know no servers. Throws UsageError where they contradict the ranks.
std::optional<Servers> find_servers(const TrainOptions& options, int ranks);

struct Plan {
  TrainOptions settings;  ///< the options, with what was decided in the place of what is automatic
  Workload workload;
  Place place;  ///< of this rank
  model::ScheduleClock clock;
  model::LearningRateSchedule schedule;
  comm::BucketRule bucket_rule;
  std::vector<comm::Slice> buckets;  ///< of gradients
  /// The ranks share the optimiser (--shard-optimizer): of every bucket of gradients each rank receives the sum of its
  /// own shard alone, updates those weights with a share of the optimiser's state that only it keeps, and the ranks
  /// bring each other the new weights. As many bytes on the wire as a sum has, 1/p of the state and of the update's
  /// work. Never in a world of one, which has nobody to share with.
  bool shards_optimizer = false;
  int checkpoint_writers = 1;  ///< ranks that write a checkpoint together
  /// How gradients are added up where the bits are the same at any number of ranks (--reproducible).
  std::optional<comm::SummationTree> tree;
  std::optional<Islands> islands;  ///< where ranks make steps of their own
  std::optional<Servers> servers;  ///< where some keep the parameters
  std::filesystem::path replay;    ///< the order of their gradients; "": as they come
  model::MemoryPlan memory;        ///< of the rank that takes most
  io::TrainingRecord record;       ///< what a checkpoint says of the run, but for how far it has come
};

/// Where a run stands when it begins, or goes on.
struct Standing {
  std::int64_t step = 0;
  DataPlace place = {};
  std::int64_t global_batch = 0;    ///< of the step before; 0: there was none
  model::ScheduleClock clock = {};  ///< of the steps before
};
/// Where the steps of this record have led, and `clock`, which its history knows.
Standing standing_of(const io::TrainingRecord& record, const model::ScheduleClock& clock);

/// What a run begins with, known once its folder has been looked at.
struct RunStart {
  std::filesystem::path folder;                ///< of the run
  const io::TrainingRecord* record = nullptr;  ///< of the checkpoint that it goes on from
  /// Else of the one whose weights it begins with; of a file that holds weights alone it says nothing.
  const io::TrainingRecord* weights = nullptr;
  model::ScheduleClock clock = {};     ///< of the checkpoint that it goes on from
  bool takes_folder_over = false;      ///< whatever it holds
  io::IoDeadline* deadline = nullptr;  ///< of the data's files; outlives the plan
};

/// Collective: the one place where options become a plan. A run that goes on keeps what its checkpoint knows, unless
/// the user gives another (going_on()). Throws UsageError and comm::AgreedError, alike on every rank.
Plan make_plan(comm::Communicator& communicator, const TrainOptions& options, const RunStart& start);
/// What is left of it once workload and place are known; no communication. Throws UsageError.
Plan complete_plan(const comm::Communicator& communicator, const TrainOptions& options, Workload workload,
                   const Place& place, std::optional<Islands> islands = {}, const Standing& from = {});
/// The plan of a run that goes on elsewhere than was thought: from a checkpoint that came since, or after a return to
/// one. The amount of work and the schedule follow. Throws UsageError.
void begin_at(Plan& plan, const Standing& from);

// The steps of make_plan, for who wants to know which of them fails, or has no use for a whole plan. Collective.

/// Rank 0 looks at data made by others, the others wait. Throws on all ranks what it throws there, UsageError where the
/// options name no data.
void inspect_job_data(comm::Communicator& communicator, const TrainOptions& options);
/// Then opens the data on all ranks, builds the network, and decides how numbers are standardised
/// (standardization.hpp).
Workload open_workload(comm::Communicator& communicator, const TrainOptions& options,
                       io::IoDeadline* deadline = nullptr, const RunStart& start = {});
/// The options of a run that begins so: what it goes on from knows what the user does not say. Throws UsageError.
TrainOptions options_of_start(const TrainOptions& options, const RunStart& start);
/// Of this rank; imagined where nobody carries the plan out (--dry-run).
Place choose_place(comm::Communicator& communicator, const TrainOptions& options);

model::LearningRateSchedule learning_rate_schedule(const TrainOptions& options, const WorkPlan& work,
                                                   const model::ScheduleClock& clock = {});

/// What `rank` of `ranks` owns, its shard of each bucket; none where everybody updates all.
std::vector<model::Slice> owned_ranges(const Plan& plan, int rank, int ranks);
/// The part of an arena that a server keeps.
comm::Slice served_part(const Servers& servers, std::size_t elements, int server);
/// Ranks that share the samples of a step, of so many in all.
int training_ranks(const Plan& plan, int ranks);
/// As Plan::memory, with `batch` samples at once.
model::MemoryPlan memory_with(const Plan& plan, const comm::Communicator& communicator, std::int64_t batch);

/// The plan as text for rank 0; --dry-run ends after it. Layers, parameters, memory per rank, FLOPs per step,
/// optimiser, learning rate, loss, input, what the network's defaults decided, buckets, the amount of work.
std::string format_plan(const Plan& plan, const comm::Communicator& communicator);

/// A layer as backward meets it.
struct BackwardLayer {
  model::LayerPlan layer;
  std::vector<std::size_t> slice_ends;  ///< of its gradients in the arena, elements, ascending; may be empty
};

/// Layers in the order of the backward pass: after one of them everything up to its last slice end is final. The last
/// one brings what becomes final with the whole pass: the statistics.
std::vector<BackwardLayer> backward_plan(const model::Network& network);

/// Collective. The same as a file, a JSON object a line. Throws comm::AgreedError where it cannot be written.
void write_backward_plan(comm::Communicator& communicator, const std::filesystem::path& file,
                         const model::Network& network);

}  // namespace lockstep::app
