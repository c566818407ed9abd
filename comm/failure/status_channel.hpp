/// \file
/// Messages between ranks besides the data: heartbeats during a long operation, and reports of each rank's state when
/// no data arrive any more. They have 224 bytes and use an MPI communicator of their own.
///
/// A rank sends them to its contacts: the ranks of its machine, its neighbours, and its O(log size) partners in
/// recursive doubling on other machines. Waiting ranks poll for messages and forward each new one to their own
/// contacts, so that every message reaches all ranks by several paths.
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

/// A rank's own report of its state.
struct Report {
  enum class Kind : std::int32_t { alive, waiting, leaving };
  Kind kind = Kind::alive;
  std::int32_t operation = 0;  ///< a Collective
  std::int32_t origin = 0;     ///< rank that made the report, in the session
  std::uint32_t serial = 0;    ///< number of the origin's report, from 1 on
  std::uint64_t sequence = 0;  ///< number of collectives entered
  double waited = 0;           ///< seconds since its last progress
  char activity[48] = {};
  std::int64_t step = -1;
  /// The first rank on its machine whose process does not run properly, with its ProcessState. For a leaving rank: the
  /// rank whose death is the cause, see Suspects::dead().
  std::int32_t witnessed = -1;
  std::int32_t witnessed_state = 0;
  char wait[128] = {};  ///< other cause of waiting than peers: "waiting for input (x.h5, 12 s)"
};

static_assert(sizeof(Report) == 224);

class StatusChannel {
 public:
  StatusChannel(MpiSession::State& state, double deadline_seconds);
  ~StatusChannel();
  StatusChannel(const StatusChannel&) = delete;
  StatusChannel& operator=(const StatusChannel&) = delete;

  /// Receives all messages that have arrived, and forwards them. Never blocks.
  void poll();
  /// Sends to every peer; never blocks (heartbeats are left out while earlier messages are undelivered).
  void send(Report report);
  /// The last report of `rank` since the start, if it waits or leaves.
  const std::optional<Report>& report(int rank) const { return reports_[static_cast<std::size_t>(rank)]; }
  /// Largest number of ranks on a report's path, including the first; each of them polls only from time to time.
  int most_hops() const noexcept { return most_hops_; }
  bool anybody_reports() const;
  bool anybody_leaves() const;
  /// True if some peer is in a long operation and sent a heartbeat recently.
  bool anybody_is_busy() const;

  /// A thread sends a heartbeat every quarter of the deadline (5 s at most) between the two calls. Both calls are
  /// cheap, because the thread stays.
  void start_heartbeat();
  void stop_heartbeat() noexcept;
  /// Sets the text of heartbeats; any thread may call it.
  void set_wait(std::string_view text);
  /// The text in the last heartbeat of `rank`, if it is recent; otherwise "".
  std::string wait_of(int rank) const;
  /// Tells every peer that this process ends by its own decision. Any thread that may call MPI at this time can call
  /// it.
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
  // The caller of the next two functions holds MPI's mutex.
  /// Sends to all contacts except `source`.
  void send_to_contacts(const Report& report, int source);
  void forget_delivered();
  void send_heartbeats(const std::stop_token& stop);
  bool lately(Clock::time_point at) const { return Clock::now() - at < 3 * period_; }

  MpiSession::State& state_;
  std::chrono::duration<double> period_;
  std::vector<int> contacts_;
  int most_hops_;
  std::vector<std::optional<Report>> reports_;
  std::vector<std::optional<Heartbeat>> heartbeats_;  ///< last heartbeat of each rank
  std::list<Outgoing> outgoing_;
  std::thread::id owner_ = std::this_thread::get_id();  ///< the thread that may call MPI, except in a long operation
  std::mutex wait_mutex_;
  std::string wait_;
  std::mutex mutex_;  ///< guards the messages that the heartbeat thread sends
  bool beats_ = false;
  std::condition_variable_any wake_;
  std::jthread thread_;
};

}  // namespace lockstep::comm
