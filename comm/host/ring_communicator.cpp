#include "comm/host/ring_communicator.hpp"

#include <exception>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "comm/session/mpi_state.hpp"

namespace lockstep::comm {
namespace {

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

RingCommunicator::RingCommunicator(MpiSession::State& state, PeerTable peers, const CommunicatorOptions& options)
    : NetworkCommunicator(state, std::move(peers), options),
      ring_(detector(), all_ranks(state.size)),
      urgent_(detector(), all_ranks(state.size), kUrgentTag) {}

std::unique_ptr<ReductionMemory> RingCommunicator::take_memory(std::size_t bytes) {
  const std::shared_ptr<ReductionMemory> block = plain_reduction_memory(bytes);
  const std::span<std::byte> all = block->writable_block();
  // A rank that fails keeps the memory until its process ends: another rank may be reading a message from it, and an
  // MPI library that finds nothing there ends the job with its own message.
  return std::make_unique<ReductionMemory>(all.data(), all.size(), [kept = detector().state().kept, block] {
    if (std::uncaught_exceptions() > 0) kept->add(block);
  });
}

const RingParts& RingCommunicator::fill(RingParts& parts, std::size_t count) const {
  parts.clear();
  for (int position = 0; position < size(); ++position) {
    parts.add(own_slice(count, position));
    parts.end_position();
  }
  return parts;
}

void RingCommunicator::run_all_reduce(std::span<float> data) {
  detector().enter();
  ring_.run(data, parts_of(data.size()), wire_of(data), in_place_,
            {.phases = RingPhases::all_reduce, .schedule = schedule_of(data.size_bytes())});
}

void RingCommunicator::run_all_reduce(std::span<double> data) {
  detector().enter();
  ring_.run(data, parts_of(data.size()), in_place_,
            {.phases = RingPhases::all_reduce, .schedule = schedule_of(data.size_bytes())});
}

void RingCommunicator::run_reduce_scatter(std::span<float> data) {
  detector().enter();
  ring_.run(data, parts_of(data.size()), wire_of(data), in_place_,
            {.phases = RingPhases::reduce_scatter,
             .schedule = schedule_of(data.size_bytes()),
             .operation = Collective::reduce_scatter});
}

void RingCommunicator::run_all_gather(std::span<std::byte> data, std::size_t element_bytes) {
  detector().enter();
  parts_.clear();
  for (int position = 0; position < size(); ++position) {
    parts_.add(own_bytes(data.size(), element_bytes, position));
    parts_.end_position();
  }
  ring_.run(data, parts_, in_place_,
            {.phases = RingPhases::all_gather,
             .schedule = schedule_of(data.size_bytes()),
             .operation = Collective::all_gather});
}

void RingCommunicator::run_broadcast(std::span<std::byte> data, int root) {
  detector().enter();
  detector().broadcast(data, root);
}

void RingCommunicator::begin_urgent(std::span<double> data) {
  urgent_.begin(data, fill(urgent_parts_, data.size()), schedule_of(data.size_bytes()));
}

void RingCommunicator::run_barrier() {
  detector().enter();
  ring_.sum_small(std::span<float>(), Collective::barrier);
}

}  // namespace lockstep::comm
