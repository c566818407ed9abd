/// \file
/// How a rank waits for messages, and what it says when they do not come.
///
/// WAITS. Every request is polled: a while at full speed, then yielding, then with short sleeps; ranks that outnumber
/// their cores yield at once, and where nobody stands still for the result (Communicator::urgent) they sleep. After the
/// deadline without progress a rank reports to all others and listens for their reports for 1.5 s; a rank that waits,
/// too, reports at once. Who stays silent is the culprit.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "comm/communicator.hpp"
#include "comm/deadline.hpp"
#include "comm/mpi_state.hpp"
#include "comm/peers.hpp"
#include "comm/shared_control.hpp"
#include "comm/status_channel.hpp"

namespace lockstep::comm {

/// What one call to advance a transfer achieved.
enum class Progress { none, some, done };

/// A message was longer than the receive that it met.
inline bool is_truncation(int code) {
  int error_class = MPI_SUCCESS;
  return code != MPI_SUCCESS && MPI_Error_class(code, &error_class) == MPI_SUCCESS && error_class == MPI_ERR_TRUNCATE;
}

class PeerWatch {
 public:
  /// `state` belongs to the session, which outlives this, as does `communicator`, whose urgency is asked for.
  PeerWatch(MpiSession::State& state, PeerTable peers, double deadline_seconds, const Communicator& communicator);
  /// On the way out of an error it takes leave of the peers, so that they do not report this rank as dead as well.
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  MpiSession::State& state() const noexcept { return state_; }
  const PeerTable& peers() const noexcept { return peers_; }
  double deadline_seconds() const noexcept { return deadline_seconds_; }

  /// A collective begins: they are counted, to tell who is in another one.
  void enter() noexcept { ++sequence_; }
  /// Calls `advance` until it says done, resting in between as above.
  template <typename Advance>
  void wait_until_done(Collective operation, Advance advance);
  /// Waits for the requests; the last of them receives `expected_bytes` (-1: it is no receive).
  void wait_for(std::span<MPI_Request> requests, Collective operation, std::int64_t expected_bytes = -1);
  /// Everybody in the session takes part; MPI's own way, waited for as everything else.
  void broadcast(std::span<std::byte> data, int root);
  void barrier();
  /// One look aside during a wait, every 0.1 s or so: has anybody died, reported, or run out of time? Charges the
  /// patience of this wait; throws PeerError.
  void look_around(Collective operation, Patience& patience);
  /// `peer` sent `got` bytes (-1: a longer message) where `expected` were to come.
  [[noreturn]] void diverged(Collective operation, int peer, std::int64_t got, std::size_t expected);

  /// As in Communicator.
  void note_activity(const char* what, std::int64_t step) noexcept;
  void begin_long_operation(const char* what);
  void end_long_operation() noexcept { status_.stop_signs_of_life(); }
  double set_deadline(double seconds) noexcept;
  bool look_at_peers();

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kLookInterval{100};

  /// One poll without progress, the `idle`-th in a row: at first at full speed (20 polls), then lending the core to
  /// others, then asleep; where nobody waits for the result asleep at once, for longer and longer (50 to 200 us).
  void rest(int idle) const;
  /// Throws when a peer that has not taken leave is dead.
  void look_for_the_dead();
  void report_waiting(Collective operation, double waited);
  /// Asks everybody where they stand and throws who is to blame.
  [[noreturn]] void inquest(Collective operation, double waited);
  std::string own_activity() const;
  /// The state of its process, as seen from here or as a rank on its machine has reported it.
  ProcessState seen_of(int rank) const;
  std::string verdict(Collective operation, double waited);

  MpiSession::State& state_;
  PeerTable peers_;
  StatusChannel status_;
  double deadline_seconds_;
  const Communicator& communicator_;
  bool oversubscribed_;
  std::uint64_t sequence_ = 0;  ///< collectives entered
  std::atomic<const char*> activity_{"the start"};
  std::atomic<std::int64_t> step_{-1};
};

template <typename Advance>
void PeerWatch::wait_until_done(Collective operation, Advance advance) {
  constexpr int kPollsPerClock = 64;
  std::optional<Patience> patience;  // from the first idle polls on: a transfer that flows never asks for the time
  Clock::time_point next_look;
  for (int idle = 0;;) {
    const Progress progress = advance();
    if (progress == Progress::done) return;
    if (progress == Progress::some) {
      idle = 0;
      patience.reset();
      continue;
    }
    rest(++idle);
    if (idle % kPollsPerClock != 0) continue;
    idle = std::min(idle, 1 << 20);  // a multiple of kPollsPerClock: asleep anyway
    const Clock::time_point now = Clock::now();
    if (!patience) {
      patience.emplace(deadline_seconds_);
      next_look = now + kLookInterval;
    } else if (now >= next_look) {
      look_around(operation, *patience);
      next_look = now + kLookInterval;
    }
  }
}

}  // namespace lockstep::comm
