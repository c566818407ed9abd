#include "comm/servers/survivor_communicator.hpp"

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "comm/session/mpi_state.hpp"

namespace lockstep::comm {

SurvivorCommunicator::SurvivorCommunicator(MpiSession& session, const CommunicatorOptions& options)
    : SurvivorCommunicator(session, calling(options)) {}

SurvivorCommunicator::SurvivorCommunicator(MpiSession& session, Calling calling)
    : SurvivorCommunicator(session, calling,
                           {.session = nullptr, .communicator = make_communicator(session, calling.options)}) {}

SurvivorCommunicator::SurvivorCommunicator(MpiSession& session, Calling calling, World all)
    : ForwardingCommunicator(*all.communicator),
      session_(session),
      options_(std::move(calling.options)),
      while_waiting_(std::move(calling.call)),
      living_(static_cast<std::size_t>(session.size())) {
  std::iota(living_.begin(), living_.end(), 0);
  worlds_.push_back(std::move(all));
  if (options_.all_reduce.measured)
    options_.all_reduce = {.limits = all_reduce_limits()};  // later communicators keep the measured limits
}

/// Adds a call while waiting that can be set later.
SurvivorCommunicator::Calling SurvivorCommunicator::calling(CommunicatorOptions options) {
  const auto call = std::make_shared<std::function<void()>>();
  options.while_waiting = [call] {
    if (*call) (*call)();
  };
  return {.options = std::move(options), .call = call};
}

SurvivorCommunicator::~SurvivorCommunicator() {
  *while_waiting_ = nullptr;
  // MPI cannot shut down in order after deaths, so no rank leaves before all have received the last messages.
  if (worlds_.size() > 1 && std::uncaught_exceptions() == 0) {
    try {
      ForwardingCommunicator::do_barrier();
      ForwardingCommunicator::do_join();
    } catch (const std::exception&) {  // a rank that does not arrive has died or is stuck at its end
    }
  }
  for (std::size_t i = 0; i + 1 < worlds_.size(); ++i) {
    session_.state().kept->add(std::make_shared<World>(std::move(worlds_[i])));
  }
}

void SurvivorCommunicator::go_on_with(const std::vector<int>& ranks) {
  World left{.session = session_.survivors(ranks, options_.deadline_seconds), .communicator = nullptr};
  left.communicator = make_communicator(*left.session, options_);
  worlds_.push_back(std::move(left));
  ForwardingCommunicator::go_on_with(*worlds_.back().communicator);
  living_ = ranks;
}

int SurvivorCommunicator::rank_of(int job_rank) const {
  const auto found = std::ranges::lower_bound(living_, job_rank);
  return found == living_.end() || *found != job_rank ? -1 : static_cast<int>(found - living_.begin());
}

std::vector<int> SurvivorCommunicator::dead_peers() const {
  std::vector<int> dead = ForwardingCommunicator::dead_peers();
  for (int& rank : dead) rank = job_rank(rank);
  return dead;
}

// Collectives ---------------------------------------------------------------------------------------------------------

template <class T, class Work>
void SurvivorCommunicator::through_copy(std::span<T> data, Work work) {
  if (!uses_network()) return work(data);
  const auto copy = std::make_shared<std::vector<T>>(data.begin(), data.end());
  try {
    work(std::span(*copy));
    ForwardingCommunicator::do_join();
  } catch (...) {
    session_.state().kept->add(copy);
    throw;
  }
  std::ranges::copy(*copy, data.begin());
}

void SurvivorCommunicator::do_all_reduce(std::span<float> data) {
  through_copy(data, [this](std::span<float> copy) { ForwardingCommunicator::do_all_reduce(copy); });
}

void SurvivorCommunicator::do_all_reduce(std::span<double> data) {
  through_copy(data, [this](std::span<double> copy) { ForwardingCommunicator::do_all_reduce(copy); });
}

void SurvivorCommunicator::do_reduce_scatter(std::span<float> data) {
  through_copy(data, [this](std::span<float> copy) { ForwardingCommunicator::do_reduce_scatter(copy); });
}

void SurvivorCommunicator::do_all_gather(std::span<std::byte> data, std::size_t element_bytes) {
  through_copy(data, [&](std::span<std::byte> copy) { ForwardingCommunicator::do_all_gather(copy, element_bytes); });
}

void SurvivorCommunicator::do_broadcast(std::span<std::byte> data, int root) {
  do {
    const std::span<std::byte> piece = data.first(std::min(kMaxCopied, data.size()));
    through_copy(piece, [&](std::span<std::byte> copy) { ForwardingCommunicator::do_broadcast(copy, root); });
    data = data.subspan(piece.size());
  } while (!data.empty());
}

}  // namespace lockstep::comm
