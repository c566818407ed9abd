/// \file
/// What an MpiSession holds; private to comm/*.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <mpi.h>

#include "comm/session/connection_watch.hpp"
#include "comm/session/deadline.hpp"
#include "comm/session/mpi_session.hpp"
#include "comm/session/peers.hpp"

namespace lockstep::comm {

struct MpiSession::State {
  int rank = 0;
  int size = 1;
  std::string host;
  MPI_Comm data = MPI_COMM_NULL;    ///< the ring's segments and collectives
  MPI_Comm status = MPI_COMM_NULL;  ///< heartbeats and reports, so that they never match a segment
  std::vector<PeerInfo> peers;      ///< of all ranks, as they said at the rendezvous
  Suspects suspects;
  std::shared_ptr<ConnectionWatch> connections;  ///< of a world of several ranks; subsets share it
  bool is_subset = false;                        ///< of another session, which owns MPI

  /// False in a world of one that nobody launched: it has no communicators.
  bool uses_mpi() const noexcept { return data != MPI_COMM_NULL; }
};

/// An MPI call's return code as PeerError: call, this rank and host, the peer (-1: all of them), MPI's own words.
void check(int code, const char* call, const MpiSession::State& state, int peer = -1);

}  // namespace lockstep::comm
