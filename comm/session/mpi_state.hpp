/// \file
/// What an MpiSession holds; private to comm/*.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <mpi.h>

#include "comm/session/connection_watch.hpp"
#include "comm/session/deadline.hpp"
#include "comm/session/mpi_session.hpp"
#include "comm/session/peers.hpp"

namespace lockstep::comm {

/// What a process tells its peers when it ends on its own account: who waits for them registers how. Shared by a
/// session and its subsets.
class LeaveTaking {
 public:
  using Word = std::list<std::function<void()>>::iterator;
  Word add(std::function<void()> word);
  void remove(Word word);
  void say_all() noexcept;

 private:
  std::mutex mutex_;
  std::list<std::function<void()>> words_;
};

/// Memory that MPI may still read from or write to: it stays until MPI has ended. Shared by a session and its subsets.
class KeptMemory {
 public:
  void add(std::shared_ptr<void> memory);

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<void>> memory_;
};

struct MpiSession::State {
  int rank = 0;
  int size = 1;
  int first_rank = 0;  ///< of a group: what its rank 0 is in the job, which messages, suspects and connections count in
  std::vector<int> survivors;  ///< of a session of those left: what each is in the job; messages count from 0
  std::string host;
  MPI_Comm data = MPI_COMM_NULL;            ///< the ring's segments and collectives
  MPI_Comm status = MPI_COMM_NULL;          ///< heartbeats and reports, so that they never match a segment
  std::vector<PeerInfo> peers;              ///< of all ranks, as they said at the rendezvous
  std::vector<std::uint32_t> last_reports;  ///< serial numbers of each rank's last (StatusChannel); of the own: made
  std::shared_ptr<Suspects> suspects = std::make_shared<Suspects>();  ///< also those of its subsets
  std::shared_ptr<ConnectionWatch> connections;                       ///< of a world of several ranks; subsets share it
  std::shared_ptr<LeaveTaking> leave_taking = std::make_shared<LeaveTaking>();  ///< subsets share it
  std::shared_ptr<KeptMemory> kept = std::make_shared<KeptMemory>();            ///< subsets share it
  bool has_lost_ranks = false;                                                  ///< and goes on without them
  bool is_subset = false;                                                       ///< of another session, which owns MPI
  FailureHandler failure_handler;
  std::atomic<double> end_limit{600};  ///< seconds
  std::mutex ending;
  std::optional<int> exit_code;  ///< what the work has come to
  std::atomic<bool> aborts{false};

  /// False in a world of one that nobody launched: it has no communicators.
  bool uses_mpi() const noexcept { return data != MPI_COMM_NULL; }
  /// A neighbour's connection has ended without a word.
  bool is_disconnected(int peer) const {
    const int in_the_job = survivors.empty() ? first_rank + peer : survivors[static_cast<std::size_t>(peer)];
    return connections && connections->is_dead(in_the_job);
  }
};

/// A call of MPI has failed; why, it seldom says.
class MpiCallError : public PeerError {
 public:
  using PeerError::PeerError;
};

/// An MPI call's return code as MpiCallError: call, this rank and host, the peer (-1: all of them), MPI's own words.
void check(int code, const char* call, const MpiSession::State& state, int peer = -1);

/// After an error: posted receives that are not done shall not land in memory that its owner takes back. What has begun
/// to arrive cannot be called back; it has 0.2 s to end.
void call_back(std::span<MPI_Request> receives) noexcept;

}  // namespace lockstep::comm
