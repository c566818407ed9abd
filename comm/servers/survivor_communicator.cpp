#include "comm/servers/survivor_communicator.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lockstep::comm {

SurvivorCommunicator::SurvivorCommunicator(MpiSession& session, const CommunicatorOptions& options)
    : SurvivorCommunicator(session, options,
                           {.session = nullptr, .communicator = make_communicator(session, options)}) {}

SurvivorCommunicator::SurvivorCommunicator(MpiSession& session, const CommunicatorOptions& options, World all)
    : ForwardingCommunicator(*all.communicator),
      session_(session),
      options_(options),
      living_(static_cast<std::size_t>(session.size())) {
  std::iota(living_.begin(), living_.end(), 0);
  worlds_.push_back(std::move(all));
  if (options.all_reduce.measured) options_.all_reduce = {.limits = all_reduce_limits()};  // those left keep them
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

}  // namespace lockstep::comm
