/// \file
/// A communicator that can go on with fewer ranks when some have died: for jobs in which collectives are seldom, and
/// whose ranks know between them who is left (--agree async, --agree quorum).
///
/// COPIES. A collective that fails leaves messages under way: MPI may still read the memory they are sent from, and
/// messages that dead ranks, or ranks that have given up, had begun to send may still come. So messages travel through
/// a copy, never from or into the caller's memory. If the collective fails the copy and the communicator stay until the
/// process ends. The ranks that are left have a communicator of MPI's of their own, so that no earlier message is taken
/// for one of theirs. In shared memory, where ranks that have given up write nothing more, there is no copy.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "comm/host/forwarding_communicator.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::comm {

/// Everything is done by another communicator, at first one of all ranks. rank() and size() are among those left.
/// Between hosts every collective is done when its call returns.
class SurvivorCommunicator final : public ForwardingCommunicator {
 public:
  /// Bytes of a copy, at most, but for sums and what is gathered. Pieces of MPI's own broadcast are a quarter of it:
  /// several are on their way at once.
  static constexpr std::size_t kMaxCopied = std::size_t{64} << 20;

  /// Collective. As make_communicator. `session` outlives this.
  SurvivorCommunicator(MpiSession& session, const CommunicatorOptions& options);
  ~SurvivorCommunicator() override;

  /// As CommunicatorOptions::while_waiting, from here on. Not while a collective is under way.
  void set_while_waiting(std::function<void()> call) { *while_waiting_ = std::move(call); }
  /// Collective over `ranks` (of the session, ascending, this one among them), after all others have died. A collective
  /// of before may have failed. Throws PeerError.
  void go_on_with(const std::vector<int>& ranks);
  /// The session's rank of one of those left, and the reverse (-1: it has died).
  int job_rank(int rank) const { return living_[static_cast<std::size_t>(rank)]; }
  int rank_of(int job_rank) const;

  /// As the session counts them.
  std::vector<int> dead_peers() const override;

 private:
  struct World {
    std::unique_ptr<MpiSession> session;  ///< session of those left; nullptr: that of all
    std::unique_ptr<Communicator> communicator;
  };
  struct Calling {
    CommunicatorOptions options;
    std::shared_ptr<std::function<void()>> call;  ///< while waiting
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
  std::vector<World> worlds_;  ///< those before stay: their ranks are not all here to end them
};

}  // namespace lockstep::comm
