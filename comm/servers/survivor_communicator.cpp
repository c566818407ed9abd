#include "comm/servers/survivor_communicator.hpp"

#include <algorithm>
#include <numeric>

namespace lockstep::comm {

SurvivorCommunicator::SurvivorCommunicator(MpiSession& session, const CommunicatorOptions& options)
    : Communicator(session.rank(), session.size()),
      session_(session),
      options_(options),
      living_(static_cast<std::size_t>(session.size())) {
  std::iota(living_.begin(), living_.end(), 0);
  communicators_.push_back(make_communicator(session, options));
  inner_ = communicators_.back().get();
  set_transport_note(inner_->transport_note());
}

void SurvivorCommunicator::go_on_with(const std::vector<int>& ranks) {
  sessions_.push_back(session_.survivors(ranks, options_.deadline_seconds));
  communicators_.push_back(make_communicator(*sessions_.back(), options_));
  inner_ = communicators_.back().get();
  living_ = ranks;
  set_position(inner_->rank(), inner_->size());
}

int SurvivorCommunicator::rank_of(int job_rank) const {
  const auto found = std::ranges::lower_bound(living_, job_rank);
  return found == living_.end() || *found != job_rank ? -1 : static_cast<int>(found - living_.begin());
}

std::vector<int> SurvivorCommunicator::dead_peers() const {
  std::vector<int> dead = inner_->dead_peers();
  for (int& rank : dead) rank = job_rank(rank);
  return dead;
}

void SurvivorCommunicator::do_all_gather(std::span<std::byte> data, std::size_t element_bytes) {
  if (element_bytes == sizeof(float)) {
    inner_->all_gather(std::span(reinterpret_cast<float*>(data.data()), data.size() / sizeof(float)));
  } else {
    inner_->all_gather(data);
  }
}

}  // namespace lockstep::comm
