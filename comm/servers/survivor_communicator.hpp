/// \file
/// A communicator that can go on with fewer ranks when some have died: for jobs in which collectives are seldom, and
/// whose ranks know between them who is left (--agree async, --agree quorum).
#pragma once

#include <memory>
#include <vector>

#include "comm/host/forwarding_communicator.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::comm {

/// Everything is done by another communicator, at first one of all ranks. rank() and size() are among those left.
class SurvivorCommunicator final : public ForwardingCommunicator {
 public:
  /// Collective. As make_communicator. `session` outlives this.
  SurvivorCommunicator(MpiSession& session, const CommunicatorOptions& options);

  /// Collective over `ranks` (of the session, ascending, this one among them), when nothing is under way: all others
  /// have died. Throws PeerError.
  void go_on_with(const std::vector<int>& ranks);
  /// The session's rank of one of those left, and the reverse (-1: it has died).
  int job_rank(int rank) const { return living_[static_cast<std::size_t>(rank)]; }
  int rank_of(int job_rank) const;

  /// As the session counts them.
  std::vector<int> dead_peers() const override;

 private:
  struct World {
    std::unique_ptr<MpiSession> session;  ///< of those left; nullptr: of all
    std::unique_ptr<Communicator> communicator;
  };
  SurvivorCommunicator(MpiSession& session, const CommunicatorOptions& options, World all);

  MpiSession& session_;
  CommunicatorOptions options_;
  std::vector<int> living_;
  std::vector<World> worlds_;  ///< those before stay: their ranks are not all here to end them
};

}  // namespace lockstep::comm
