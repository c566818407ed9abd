#include "comm/ring_communicator.hpp"

#include <numeric>
#include <utility>
#include <vector>

#include "comm/reduction_memory.hpp"

namespace lockstep::comm {
namespace {

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

RingCommunicator::RingCommunicator(MpiSession::State& state, PeerTable peers, double deadline_seconds, std::string note)
    : Communicator(state.rank, state.size),
      watch_(state, std::move(peers), deadline_seconds, *this),
      ring_(watch_, all_ranks(state.size)) {
  set_transport_note(std::move(note));
}

std::unique_ptr<std::pmr::memory_resource> RingCommunicator::do_reduction_memory(std::size_t bytes) {
  return plain_reduction_memory(bytes);
}

const RingParts& RingCommunicator::parts_of(std::size_t count) {
  parts_.clear();
  for (int place = 0; place < size(); ++place) {
    parts_.add(own_slice(count, place));
    parts_.end_place();
  }
  return parts_;
}

void RingCommunicator::do_all_reduce_sum(std::span<float> data, const Wire& wire) {
  watch_.enter();
  if (data.size_bytes() <= RingGroup::kSmallBytes) return ring_.sum_small(data, Collective::all_reduce);
  ring_.travel(data, parts_of(data.size()), RingTrip::all_reduce, wire, in_place_, Collective::all_reduce);
}

void RingCommunicator::do_all_reduce_sum(std::span<double> data) {
  watch_.enter();
  if (data.size_bytes() <= RingGroup::kSmallBytes) return ring_.sum_small(data, Collective::all_reduce);
  ring_.travel(data, parts_of(data.size()), RingTrip::all_reduce, in_place_, Collective::all_reduce);
}

void RingCommunicator::do_reduce_scatter_sum(std::span<float> data, const Wire& wire) {
  watch_.enter();
  // The order of the additions, too, is that of an all-reduce.
  if (data.size_bytes() <= RingGroup::kSmallBytes) return ring_.sum_small(data, Collective::reduce_scatter);
  ring_.travel(data, parts_of(data.size()), RingTrip::reduce_scatter, wire, in_place_, Collective::reduce_scatter);
}

void RingCommunicator::do_all_gather(std::span<float> data) {
  watch_.enter();
  ring_.travel(data, parts_of(data.size()), RingTrip::all_gather, {}, in_place_, Collective::all_gather);
}

void RingCommunicator::do_broadcast(std::span<std::byte> data, int root) {
  watch_.enter();
  watch_.broadcast(data, root);
}

void RingCommunicator::do_barrier() {
  watch_.enter();
  watch_.barrier();
}

}  // namespace lockstep::comm
