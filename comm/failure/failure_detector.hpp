/// \file
/// Waits for peers, and explains why they do not come: one failure detector for all transports.
///
/// OBSERVATIONS. For a rank on the same machine: its process and, with shared memory, the page on which it shows its
/// activity (SharedControl). For a rank on another machine: its messages, which are heartbeats during a long operation
/// and a report when it waits too long or leaves (StatusChannel); and the end of its connection (ConnectionWatch).
///
/// WAITS. Messages are polled: at full speed for a while, then yielding, then with short sleeps (Backoff). Ranks that
/// outnumber their cores yield at once. If no thread waits for the result (Urgency) and computation needs all cores,
/// they sleep. After the deadline without progress the rank names the missing ranks, if their pages identify them.
/// Otherwise it reports to all others and listens for their reports for 1.5 s; a rank that also waits reports at once.
/// The silent rank is the culprit.
///
/// A WAIT INSIDE MPI. If Open MPI loses a connection inside a call, it reports this to the launcher and waits for an
/// answer. The launcher does not answer, and ends the job within a second. If polls have stood still for 0.4 s after a
/// death, the thread of ConnectionWatch therefore reports the death in place of the blocked thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/communicator_options.hpp"
#include "comm/failure/shared_control.hpp"
#include "comm/failure/status_channel.hpp"
#include "comm/failure/urgency.hpp"
#include "comm/session/backoff.hpp"
#include "comm/session/connection_watch.hpp"
#include "comm/session/deadline.hpp"
#include "comm/session/mpi_state.hpp"
#include "comm/session/peers.hpp"

namespace lockstep::comm {

/// Result of one call that advances a transfer.
enum class Progress { none, some, done };

/// True if a message was longer than its receive buffer.
inline bool is_truncation(int code) {
  int error_class = MPI_SUCCESS;
  return code != MPI_SUCCESS && MPI_Error_class(code, &error_class) == MPI_SUCCESS && error_class == MPI_ERR_TRUNCATE;
}

class FailureDetector {
 public:
  /// The session owns `state` and outlives this, as does `urgency`.
  FailureDetector(MpiSession::State& state, PeerTable peers, const CommunicatorOptions& options,
                  const Urgency& urgency);
  /// After an error, takes leave of the peers, so that they do not report this rank as dead, too.
  ~FailureDetector();
  FailureDetector(const FailureDetector&) = delete;
  FailureDetector& operator=(const FailureDetector&) = delete;

  /// A waiting thread calls `serve` at each poll, for a sum that overtakes the awaited operation. `serve` does the work
  /// that needs no waiting and returns true if there was any. Call it before the first wait.
  void set_overtaking(std::function<bool()> serve) { serve_ = std::move(serve); }
  /// From now on such sums may come. Any thread may call it.
  void expect_overtaking() noexcept { expects_overtaking_.store(true, std::memory_order_relaxed); }
  bool expects_overtaking() const noexcept { return expects_overtaking_.load(std::memory_order_relaxed); }
  /// For a wait other than wait_until_done(), in the thread that drives collectives.
  bool serve_overtaking() const { return expects_overtaking() && serve_(); }

  /// `rank` shows its activity on `page`. Call it before the first wait.
  void add_page(int rank, SharedControl& page);
  /// This rank has finished waiting: says farewell on its page and drops all pages.
  void forget_pages() noexcept;

  MpiSession::State& state() const noexcept { return state_; }
  const PeerTable& peers() const noexcept { return peers_; }
  double deadline_seconds() const noexcept { return deadline_seconds_; }

  /// A collective begins; the count reveals ranks that are in another one.
  void enter() noexcept { ++sequence_, awaited_ = -1; }
  /// The next data of the collective come from `rank`; -1: from several.
  void await(int rank) noexcept { awaited_ = rank; }
  int awaited() const noexcept { return awaited_; }
  /// Calls `advance` until it returns done, and rests in between as described above.
  template <class Advance>
  void wait_until_done(Collective operation, Advance advance);
  /// Waits for the requests; none of them may receive a message.
  void wait_for(std::span<MPI_Request> requests, Collective operation);
  /// MPI's own broadcast for the whole session, with the same waits as everything else.
  void broadcast(std::span<std::byte> data, int root);
  /// True if a wait may keep its core busy for a while.
  bool may_spin() const noexcept { return !oversubscribed_ && urgency_.urgent(); }
  /// Checks every 0.1 s or so during a wait: has a rank died, reported, or run out of time? Charges the patience of
  /// this wait; throws PeerError. `missing`: the awaited ranks, if all of them have pages.
  void watch_peers(Collective operation, Patience& patience, std::span<const int> missing = {});
  /// A call of MPI has failed. Throws PeerError if a dead peer is the cause, which may take a while to become visible.
  void blame_deaths();
  /// Throws: `peer` sent `got` bytes (-1: a longer message) instead of `expected`.
  [[noreturn]] void diverged(Collective operation, int peer, std::int64_t got, std::size_t expected);

  /// See Communicator.
  void note_activity(const char* what, std::int64_t step) noexcept;
  void begin_long_operation(const char* what);
  void end_long_operation() noexcept;
  double set_deadline(double seconds) noexcept;
  bool check_peers();
  /// See Communicator::dead_peers.
  std::vector<int> dead_peers() const;
  /// See Communicator::note_wait. Any thread may call it.
  void note_wait(std::string_view text);
  /// This process ends by its own decision: peers need not report it as dead. Any thread may call it.
  void take_leave() noexcept;
  /// `driven`: from here on another thread than the constructing one calls MPI.
  void set_driven(bool driven) noexcept { driven_.store(driven, std::memory_order_relaxed); }
  /// The patience of a new wait.
  Patience patience() const { return Patience(deadline_seconds_, excuse_seconds_); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kCheckInterval{100};

  class Waiting {
   public:
    explicit Waiting(std::atomic<bool>& waits) : waits_(waits), before_(waits.load(std::memory_order_relaxed)) {
      waits_.store(true, std::memory_order_relaxed);
    }
    ~Waiting() { waits_.store(before_, std::memory_order_relaxed); }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    std::atomic<bool>& waits_;
    bool before_;
  };

  /// Rests after the `idle`-th poll in a row without progress. If nobody waits for the result and computation needs all
  /// cores, sleeps at once, for longer and longer (50 to 200 us).
  void rest(Backoff& backoff, int idle) const;
  Backoff::Pace pace() const noexcept;
  void show_farewell() noexcept;
  /// Throws if a peer is dead that has not taken leave, unless the launcher is already ending the job.
  void find_deaths();
  /// For the watch's thread: ends the job if a wait is blocked inside MPI.
  void find_blocked_wait();
  /// True if it has taken leave or reported: in order, or with an error of its own.
  bool has_left(int rank) const;
  /// True if a dead rank's farewell arrives late. Waits for a moment, because its last messages may be under way.
  bool farewell_is_late(int rank);
  /// True if a rank left for another reason than having seen a death.
  bool anybody_left_on_own_account() const;
  void report_waiting(Collective operation, double waited);
  /// Asks all ranks for their state and throws the error that names the culprit.
  [[noreturn]] void fail_after_reports(Collective operation, double waited);
  /// "rank 1 (host …) has not arrived at an all-reduce for 3 s; …": the first few of them. Marks them as suspects.
  std::string describe_missing(std::span<const int> ranks, Collective operation, double waited);
  SharedControl* page(int rank) const { return pages_[static_cast<std::size_t>(rank)]; }
  bool is_busy(int rank) const;
  /// The rank's last known activity, or that of its peers.
  std::string whereabouts(int rank, const char* peers_do) const;
  std::string own_activity() const;
  /// The rank's other cause of waiting than peers, as it reports it; "": none.
  std::string wait_of(int rank) const;
  /// The visible reason why it does not come: one sentence.
  std::string explanation_of(int rank) const;
  /// The state of its process, as seen from here or as reported by a rank on its machine.
  ProcessState seen_of(int rank) const;
  std::string verdict(Collective operation, double waited);

  MpiSession::State& state_;
  PeerTable peers_;
  StatusChannel status_;
  std::vector<SharedControl*> pages_;  ///< page of each rank; nullptr: none
  bool by_messages_ = true;            ///< true if some peer has no page
  double deadline_seconds_, excuse_seconds_;
  std::function<void()> while_waiting_;
  const Urgency& urgency_;
  std::function<bool()> serve_;
  std::atomic<bool> expects_overtaking_{false};
  bool oversubscribed_;
  bool has_own_core_;           ///< the thread that drives collectives has a core besides the computing threads
  std::uint64_t sequence_ = 0;  ///< number of collectives entered
  int awaited_ = -1;            ///< rank whose data the present collective waits for
  std::atomic<const char*> activity_{"the start"};
  std::atomic<std::int64_t> step_{-1};
  std::atomic<bool> driven_{false};
  std::atomic<bool> waits_{false};
  std::atomic<std::uint64_t> polls_{0};            ///< number of polls in waits
  std::uint64_t polls_seen_ = 0;                   ///< polls_ at the last look of the watch's thread
  int standstills_ = 0;                            ///< consecutive looks that saw a wait without a poll
  std::optional<Clock::time_point> end_of_grace_;  ///< end of the grace after a death that follows a leave
  LeaveTaking::Entry leave_;
  std::optional<std::list<ConnectionWatch::Look>::iterator> look_;
};

template <class Advance>
void FailureDetector::wait_until_done(Collective operation, Advance advance) {
  std::optional<Patience> patience;  // starts with the first idle polls: a transfer that flows never reads the clock
  Clock::time_point next_check;
  Backoff backoff(pace());
  const Waiting waiting(waits_);
  for (int idle = 0;;) {
    polls_.store(polls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    const Progress progress = advance();
    if (progress == Progress::done) return;
    const bool served = serve_overtaking();
    if (progress == Progress::some || served) {
      idle = 0;
      backoff.reset();
      patience.reset();
      continue;
    }
    // After a poll: what has come while this rank slept, or had no core, counts before the time does.
    const Clock::time_point now = Clock::now();
    if (!patience) {
      patience.emplace(this->patience());
      next_check = now + kCheckInterval;
    } else if (now >= next_check) {
      watch_peers(operation, *patience);
      next_check = now + kCheckInterval;
    }
    idle = std::min(idle + 1, 1 << 20);
    rest(backoff, idle);
  }
}

}  // namespace lockstep::comm
