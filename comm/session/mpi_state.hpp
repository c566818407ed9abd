/// \file
/// The data of an MpiSession; private to comm/.
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
#include "comm/session/mpi_yield.hpp"
#include "comm/session/peers.hpp"
#include "comm/session/turn_mutex.hpp"

namespace lockstep::comm {

/// Messages of a process to its peers when it ends by its own decision: code that waits for peers registers its
/// message. Shared by a session and its subsets.
class LeaveTaking {
 public:
  using Entry = std::list<std::function<void()>>::iterator;
  Entry add(std::function<void()> farewell);
  void remove(Entry entry);
  void say_all() noexcept;

 private:
  std::mutex mutex_;
  std::list<std::function<void()>> farewells_;
};

/// Memory that MPI may still access. It stays until MPI ends. Shared by a session and its subsets.
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
  int first_rank = 0;  ///< for a group: the job rank of its rank 0; messages, suspects and connections use job ranks
  std::vector<int> survivors;  ///< for a session of survivors: their job ranks; messages count from 0
  std::string host;
  MPI_Comm data = MPI_COMM_NULL;            ///< the ring's segments and collectives
  MPI_Comm status = MPI_COMM_NULL;          ///< heartbeats and reports, so that they never match a segment
  std::vector<PeerInfo> peers;              ///< each rank's description of itself, from the rendezvous
  std::vector<std::uint32_t> last_reports;  ///< serial number of the last report from each rank, and of this rank's own
                                            ///< last report (StatusChannel)
  /// Held inside each MPI call except those of its start and its end (MPI_THREAD_SERIALIZED): the heartbeat thread, a
  /// worker and a server beside it may call MPI at the same time. Shared by subsets.
  std::shared_ptr<TurnMutex> mpi = std::make_shared<TurnMutex>();
  std::shared_ptr<Suspects> suspects = std::make_shared<Suspects>();  ///< shared by subsets
  std::shared_ptr<ConnectionWatch> connections;  ///< only in a world of several ranks; shared by subsets
  std::shared_ptr<LeaveTaking> leave_taking = std::make_shared<LeaveTaking>();  ///< shared by subsets
  std::shared_ptr<KeptMemory> kept = std::make_shared<KeptMemory>();            ///< shared by subsets
  std::shared_ptr<MpiYield> yield;  ///< only in a world with MPI; shared by subsets
  bool has_lost_ranks = false;      ///< ranks have died, and the others continue
  bool is_subset = false;           ///< part of another session, which owns MPI
  FailureHandler failure_handler;
  std::atomic<double> end_limit{600};  ///< seconds
  std::mutex ending;
  std::optional<int> exit_code;  ///< result of the work
  std::atomic<bool> aborts{false};

  /// False in a world of one without a launcher: it has no communicators.
  bool uses_mpi() const noexcept { return data != MPI_COMM_NULL; }
  /// True if a neighbour's connection has ended without farewell.
  bool is_disconnected(int peer) const {
    const int in_the_job = survivors.empty() ? first_rank + peer : survivors[static_cast<std::size_t>(peer)];
    return connections && connections->is_dead(in_the_job);
  }
};

/// A failed MPI call; its text seldom states the cause.
class MpiCallError : public PeerError {
 public:
  using PeerError::PeerError;
};

/// Throws MpiCallError unless an MPI call's return code is success. The text has the call, this rank and host, the peer
/// (-1: all of them) and MPI's own message.
void check(int code, const char* call, const MpiSession::State& state, int peer = -1);

/// For errors: cancels posted receives, so that no data arrive in memory after its owner frees it. Messages that have
/// begun to arrive cannot be cancelled; they get 0.2 s to complete.
void call_back(std::span<MPI_Request> receives) noexcept;

}  // namespace lockstep::comm
