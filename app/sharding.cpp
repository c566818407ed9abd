#include "app/sharding.hpp"

#include <algorithm>

#include "comm/agreement.hpp"

namespace lockstep::app {

comm::BucketRule bucket_rule(const TrainOptions& options, const Place& place, const comm::Communicator& communicator) {
  return {transport_of(place, communicator), communicator.size(), communicator.ring_length(),
          static_cast<std::size_t>(options.bucket_size)};
}

std::vector<comm::Slice> gradient_buckets(const TrainOptions& options, const model::Network& network,
                                          const Place& place, const comm::Communicator& communicator) {
  return bucket_rule(options, place, communicator).cut(network.parameters().slice_ends());
}

bool shards_optimizer(const TrainOptions& options, int ranks) noexcept { return options.shard_optimizer && ranks > 1; }

std::vector<model::ArenaRange> owned_ranges(const TrainOptions& options, std::span<const comm::Slice> buckets, int rank,
                                            int ranks) {
  std::vector<model::ArenaRange> owned;
  if (!shards_optimizer(options, ranks)) return owned;
  for (const comm::Slice& bucket : buckets) {
    const comm::Slice shard = comm::shard_of(bucket.count, rank, ranks);
    owned.push_back({.offset = bucket.offset + shard.offset, .count = shard.count});
  }
  return owned;
}

std::vector<model::ArenaRange> most_owned_ranges(const TrainOptions& options, std::span<const comm::Slice> buckets,
                                                 int ranks) {
  return owned_ranges(options, buckets, ranks - 1, ranks);  // the last one has what division leaves
}

void check_sharding(const TrainOptions& options, const Place& place) {
  if (!options.shard_optimizer || !place.gpu || options.execution.wire == "fp32") return;
  throw UsageError(
      "--shard-optimizer on GPUs goes with --wire fp32 only: take one of --shard-optimizer and --wire bf16");
}

StateGroups gather_state(comm::Communicator& communicator, model::Model& model, std::span<const comm::Slice> buckets) {
  const std::vector<std::string> names = model.state_groups();
  const bool shared = !model.updates_all(), writes = communicator.rank() == 0;
  StateGroups groups(names.size());
  std::vector<float> bucket_of_others;
  const auto make_room = [&] {
    for (std::vector<float>& group : groups) group.resize(writes ? model.arena_elements() : 0);
    if (writes || !shared) return;
    std::size_t most = 0;
    for (const comm::Slice& bucket : buckets) most = std::max(most, bucket.count);
    bucket_of_others.resize(most);
  };
  if (!shared) {
    make_room();
    for (std::size_t i = 0; i < groups.size(); ++i) model.download_group(names[i], groups[i]);
    return groups;
  }
  comm::all_succeed(communicator, make_room);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (names[i] == "parameters") {
      if (writes) model.download_group(names[i], groups[i]);
      continue;
    }
    for (const comm::Slice& bucket : buckets) {
      const std::span<float> all = writes ? std::span(groups[i]).subspan(bucket.offset, bucket.count)
                                          : std::span(bucket_of_others).first(bucket.count);
      const comm::Slice own = communicator.own_slice(bucket.count, communicator.rank());
      model.download_range(names[i], {.offset = bucket.offset + own.offset, .count = own.count},
                           all.subspan(own.offset, own.count));
      communicator.all_gather(all);
    }
  }
  return groups;
}

}  // namespace lockstep::app
