#include "app/plan/sharding.hpp"

#include <algorithm>

namespace lockstep::app {

comm::BucketRule bucket_rule(const ExecutionOptions& options, const Place& place,
                             const comm::Communicator& communicator) {
  return {transport_of(place, communicator), communicator.size(), communicator.ring_length(),
          static_cast<std::size_t>(options.bucket_size)};
}

std::vector<comm::Slice> gradient_buckets(const ExecutionOptions& options, const model::Network& network,
                                          const Place& place, const comm::Communicator& communicator) {
  return bucket_rule(options, place, communicator).cut(network.parameters().slice_ends());
}

bool shards_optimizer(const ExecutionOptions& options, int ranks) noexcept {
  return options.shard_optimizer && ranks > 1;
}

std::vector<model::Slice> owned_ranges(const ExecutionOptions& options, std::span<const comm::Slice> buckets, int rank,
                                       int ranks) {
  std::vector<model::Slice> owned;
  if (!shards_optimizer(options, ranks)) return owned;
  for (const comm::Slice& bucket : buckets) {
    const comm::Slice part = comm::slice_of(bucket.count, rank, ranks);
    owned.push_back({.offset = bucket.offset + part.offset, .count = part.count});
  }
  return owned;
}

std::vector<model::Slice> most_owned_ranges(const ExecutionOptions& options, std::span<const comm::Slice> buckets,
                                            int ranks) {
  return owned_ranges(options, buckets, ranks - 1, ranks);  // the last one has what division leaves
}

int checkpoint_writers(const TrainOptions& options, int ranks) noexcept {
  if (options.run.checkpoint_writers == 0) return shards_optimizer(options.execution, ranks) ? ranks : 1;
  return static_cast<int>(std::min<std::int64_t>(options.run.checkpoint_writers, ranks));
}

void check_sharding(const ExecutionOptions& options, const Place& place) {
  if (!options.shard_optimizer || !place.gpu || options.wire == comm::WireFormat::fp32) return;
  throw UsageError(
      "--shard-optimizer on GPUs goes with --wire fp32 only: take one of --shard-optimizer and --wire bf16");
}

}  // namespace lockstep::app
