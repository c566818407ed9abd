/// \file
/// The MPI library's own MPI_Allreduce, blocking, as programs call it: the baseline for our sums. The library chooses
/// the algorithm; users can choose it with the library's settings.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <thread>

#include "comm/session/deadline.hpp"
#include "comm/session/mpi_session.hpp"
#include "comm/session/peers.hpp"

namespace lockstep::comm {

/// A call that waits for a peer cannot be interrupted, so a thread watches the clock. Past the deadline it prints this
/// rank's name, the awaited operation and the peers on the same machine that are stopped or dead, and ends the job with
/// MpiSession::abort.
class MpiAllReduce {
 public:
  /// Collective. `session` outlives this.
  MpiAllReduce(MpiSession& session, double deadline_seconds);
  ~MpiAllReduce();
  MpiAllReduce(const MpiAllReduce&) = delete;
  MpiAllReduce& operator=(const MpiAllReduce&) = delete;

  /// Collective: data[i] = sum over ranks of data[i], in place. The library determines the order of the additions.
  void sum(std::span<float> data);
  const PeerTable& peers() const noexcept { return peers_; }

 private:
  void watch(const std::stop_token& stop);
  [[noreturn]] void give_up(double waited);

  MpiSession& session_;
  double deadline_seconds_;
  PeerTable peers_;
  std::atomic<std::uint64_t> entries_and_exits_{0};  ///< odd: inside a call
  std::atomic<std::size_t> count_{0};                ///< elements of the present call
  std::jthread guard_;                               ///< last member: it uses all others
};

}  // namespace lockstep::comm
