/// \file
/// A communicator that can continue with fewer ranks after some have died. It suits jobs that use few collectives and
/// whose ranks determine the survivors themselves (--agree async, --agree quorum).
///
/// COPIES. A failed collective leaves messages under way: MPI may still read the memory that it sends from, and
/// messages that dead ranks, or ranks that gave up, had begun to send may still arrive. So collectives between hosts
/// use a copy of the caller's data. If a collective fails, the copy and the communicator stay until the process ends.
/// The survivors get an MPI communicator of their own, so none of them receives an earlier message. Shared memory needs
/// no copy: a rank that has given up writes nothing more.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "comm/host/forwarding_communicator.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::comm {

/// Forwards all calls to another communicator, initially one of all ranks. rank() and size() count survivors only.
/// Between hosts every collective is complete when its call returns.
class SurvivorCommunicator final : public ForwardingCommunicator {
 public:
  /// Limit of a copy in bytes, except for sums and all-gathers. MPI's own broadcast sends pieces of a quarter of it,
  /// several at once.
  static constexpr std::size_t kMaxCopied = std::size_t{64} << 20;

  /// Collective. The options are those of make_communicator(). `session` outlives this.
  SurvivorCommunicator(MpiSession& session, const CommunicatorOptions& options);
  ~SurvivorCommunicator() override;

  /// Replaces CommunicatorOptions::while_waiting. No collective may be under way.
  void set_while_waiting(std::function<void()> call) { *while_waiting_ = std::move(call); }
  /// Collective over `ranks`, after all other ranks have died. `ranks`: ranks in the session, ascending, including this
  /// one. An earlier collective may have failed. Throws PeerError.
  void go_on_with(const std::vector<int>& ranks);
  /// The session's rank of a survivor, and the reverse (-1: it has died).
  int job_rank(int rank) const { return living_[static_cast<std::size_t>(rank)]; }
  int rank_of(int job_rank) const;

  /// Ranks in the session.
  std::vector<int> dead_peers() const override;

 private:
  struct World {
    std::unique_ptr<MpiSession> session;  ///< session of the survivors; nullptr: the whole session
    std::unique_ptr<Communicator> communicator;
  };
  struct Calling {
    CommunicatorOptions options;
    std::shared_ptr<std::function<void()>> call;  ///< called while waiting
  };
  static Calling calling(CommunicatorOptions options);
  SurvivorCommunicator(MpiSession& session, Calling calling);
  SurvivorCommunicator(MpiSession& session, Calling calling, World all);

  void do_all_reduce(std::span<float> data) override;
  void do_all_reduce(std::span<double> data) override;
  void do_reduce_scatter(std::span<float> data) override;
  void do_all_gather(std::span<std::byte> data, std::size_t element_bytes) override;
  void do_broadcast(std::span<std::byte> data, int root) override;
  template <class T, class Work>
  void through_copy(std::span<T> data, Work work);

  MpiSession& session_;
  CommunicatorOptions options_;
  std::shared_ptr<std::function<void()>> while_waiting_;  ///< function that all communicators call
  std::vector<int> living_;
  std::vector<World> worlds_;  ///< earlier ones stay, because ending them is collective
};

}  // namespace lockstep::comm
