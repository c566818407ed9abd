/// \file
/// What ranks tell each other besides the data: heartbeats during a long operation, and, when nothing arrives any
/// more, a report of where each one stands. Messages of 224 bytes on an MPI communicator of their own.
///
/// A rank sends them to its contacts: the ranks of its machine, its neighbours, and those that it exchanges with by
/// doubling, O(log size) on other machines. Whoever waits looks for messages and passes on to its own contacts what it
/// has not had before, so that all hear of it, on several ways.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/session/mpi_state.hpp"
#include "comm/session/peers.hpp"

namespace lockstep::comm {

/// Where a rank stands, as it says itself.
struct Report {
  enum class Kind : std::int32_t { alive, waiting, leaving };
  Kind kind = Kind::alive;
  std::int32_t operation = 0;  ///< a Collective
  std::int32_t origin = 0;     ///< whose report it is; of the session
  std::uint32_t serial = 0;    ///< counts the origin's, from 1 on
  std::uint64_t sequence = 0;  ///< how many collectives it has entered
  double waited = 0;           ///< seconds since its last progress
  char activity[48] = {};
  std::int64_t step = -1;
  /// Of the ranks on its machine the first whose process does not run as it should, and its ProcessState.
  /// Of a rank that leaves: the one because of which it does, as Suspects::dead() has it.
  std::int32_t witnessed = -1;
  std::int32_t witnessed_state = 0;
  char wait[128] = {};  ///< what else than its peers it waits for: "waiting for input (x.h5, 12 s)"
};

static_assert(sizeof(Report) == 224);

class StatusChannel {
 public:
  StatusChannel(MpiSession::State& state, double deadline_seconds);
  ~StatusChannel();
  StatusChannel(const StatusChannel&) = delete;
  StatusChannel& operator=(const StatusChannel&) = delete;

  /// Takes in what has arrived, and passes it on. Never blocks.
  void poll();
  /// For every peer; never blocks (heartbeats are left out while earlier messages are still on their way).
  void send(Report report);
  /// What `rank` has reported since the start, if it waits or leaves.
  const std::optional<Report>& report(int rank) const { return reports_[static_cast<std::size_t>(rank)]; }
  /// Ranks that a report passes on its way, at most, the first included: each looks for it from time to time only.
  int most_hops() const noexcept { return most_hops_; }
  bool anybody_reports() const;
  bool anybody_leaves() const;
  /// Some peer is in a long operation and gave a heartbeat lately.
  bool anybody_is_busy() const;

  /// Between the two a thread sends a heartbeat every quarter of the deadline (5 s at most). It is the only one to
  /// call MPI then. Cheap: the thread stays.
  void start_heartbeat();
  void stop_heartbeat() noexcept;
  /// What heartbeats say from now on; from any thread.
  void set_wait(std::string_view text);
  /// What the last heartbeat of `rank` said, if that was lately; "": nothing.
  std::string wait_of(int rank) const;
  /// To every peer: this process ends on its own account. From any thread, as far as it may call MPI now.
  void take_leave() noexcept;

 private:
  struct Outgoing {
    Report report;
    std::vector<MPI_Request> requests;
  };
  using Clock = std::chrono::steady_clock;
  struct Heartbeat {
    Clock::time_point at;
    std::string wait;
  };

  void take_in(const Report& report);
  /// To all contacts but `source`.
  void send_to_contacts(const Report& report, int source);
  void forget_delivered();
  void send_heartbeats(const std::stop_token& stop);
  bool lately(Clock::time_point at) const { return Clock::now() - at < 3 * period_; }

  MpiSession::State& state_;
  std::chrono::duration<double> period_;
  std::vector<int> contacts_;
  int most_hops_;
  std::vector<std::optional<Report>> reports_;
  std::vector<std::optional<Heartbeat>> heartbeats_;  ///< the last of each rank
  std::list<Outgoing> outgoing_;
  std::thread::id owner_ = std::this_thread::get_id();  ///< may call MPI but in a long operation
  std::mutex wait_mutex_;
  std::string wait_;
  std::mutex mutex_;  ///< held around what the heartbeat's thread sends
  bool beats_ = false;
  std::condition_variable_any wake_;
  std::jthread thread_;
};

}  // namespace lockstep::comm
