/// \file
/// The optimiser, shared (--shard-optimizer): of every bucket of gradients each rank receives the sum of its own shard
/// alone, updates those weights with a share of the optimiser's state that only it keeps, and the ranks bring each
/// other the new weights. As many bytes on the wire as a sum has, 1/p of the state and of the update's work.
#pragma once

#include <span>
#include <vector>

#include "app/options/train_options.hpp"
#include "app/plan/placement.hpp"
#include "comm/communicator.hpp"
#include "comm/gradient_reducer.hpp"
#include "model/network.hpp"
#include "model/slice.hpp"

namespace lockstep::app {

/// How gradients are cut into buckets, and the buckets that they are reduced in.
comm::BucketRule bucket_rule(const ExecutionOptions& options, const Place& place,
                             const comm::Communicator& communicator);
std::vector<comm::Slice> gradient_buckets(const ExecutionOptions& options, const model::Network& network,
                                          const Place& place, const comm::Communicator& communicator);

/// Whether ranks share the update. One rank alone has nobody to share with.
bool shards_optimizer(const ExecutionOptions& options, int ranks) noexcept;
/// What `rank` of `ranks` owns, its shard of each bucket; none where everybody updates all.
std::vector<model::Slice> owned_ranges(const ExecutionOptions& options, std::span<const comm::Slice> buckets, int rank,
                                       int ranks);
/// The same of who owns most: what memory is planned for.
std::vector<model::Slice> most_owned_ranges(const ExecutionOptions& options, std::span<const comm::Slice> buckets,
                                            int ranks);

/// How many ranks write a checkpoint: where they share the update all of them, each what it updates, else rank 0; or as
/// many as the user says.
int checkpoint_writers(const TrainOptions& options, int ranks) noexcept;

/// Throws UsageError where the options do not go together in this place.
void check_sharding(const ExecutionOptions& options, const Place& place);

}  // namespace lockstep::app
