/// \file
/// The data of an MpiSession; private to comm/*.cpp.
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
  int first_rank = 0;  ///< for a group: the job rank of its rank 0; messages, suspects and connections use job ranks
  std::vector<int> survivors;  ///< for a session of survivors: their job ranks; messages count from 0
  std::string host;
  MPI_Comm data = MPI_COMM_NULL;            ///< the ring's segments and collectives
  MPI_Comm status = MPI_COMM_NULL;          ///< heartbeats and reports, so that they never match a segment
  std::vector<PeerInfo> peers;              ///< descriptions of all ranks, as they gave them at the rendezvous
  std::vector<std::uint32_t> last_reports;  ///< serial numbers of each rank's last (StatusChannel); of the own: made
  /// Held inside each call of MPI but those of its start and its end (MPI_THREAD_SERIALIZED): a heartbeat may come
  /// while a worker and the server beside it talk to others. Shared by subsets.
  std::shared_ptr<TurnMutex> mpi = std::make_shared<TurnMutex>();
  std::shared_ptr<Suspects> suspects = std::make_shared<Suspects>();  ///< also those of its subsets
  std::shared_ptr<ConnectionWatch> connections;  ///< only in a world of several ranks; subsets share it
  std::shared_ptr<LeaveTaking> leave_taking = std::make_shared<LeaveTaking>();  ///< subsets share it
  std::shared_ptr<KeptMemory> kept = std::make_shared<KeptMemory>();            ///< subsets share it
  std::shared_ptr<MpiYield> yield;  ///< only in a world with MPI; subsets share it
  bool has_lost_ranks = false;      ///< and goes on without them
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

/// A failed call of MPI, which seldom states the cause.
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
