/// \file
/// How a rank waits for its peers, and what it says when they do not come: one failure detector for all transports.
///
/// WHAT IT SEES. Of a rank on the same machine its process, and, where the ranks share memory, the page on which it
/// shows what it is doing (SharedControl). Of a rank elsewhere what it sends: heartbeats during a long operation, a
/// report when it waits too long or leaves (StatusChannel), and the end of its connection (ConnectionWatch).
///
/// WAITS. Messages are polled: a while at full speed, then yielding, then with short sleeps (Backoff); ranks that
/// outnumber their cores yield at once. Where nobody stands still for the result (Urgency) and computation wants all
/// cores, they sleep. After the deadline without progress the rank names who has not come, where their pages tell. Else
/// it reports to all others and listens for their reports for 1.5 s; a rank that waits, too, reports at once. Who stays
/// silent is the culprit.
///
/// A WAIT THAT MPI KEEPS. Open MPI tells the launcher of a lost connection inside a call, and the launcher, which ends
/// the job within a second, does not answer. Where polls have stood still for 0.4 s after a death the thread of
/// ConnectionWatch says what the waiting one cannot.
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

/// What one call to advance a transfer achieved.
enum class Progress { none, some, done };

/// A message was longer than the receive that it met.
inline bool is_truncation(int code) {
  int error_class = MPI_SUCCESS;
  return code != MPI_SUCCESS && MPI_Error_class(code, &error_class) == MPI_SUCCESS && error_class == MPI_ERR_TRUNCATE;
}

class FailureDetector {
 public:
  /// `state` belongs to the session, which outlives this, as does `urgency`.
  FailureDetector(MpiSession::State& state, PeerTable peers, const CommunicatorOptions& options,
                  const Urgency& urgency);
  /// On the way out of an error it takes leave of the peers, so that they do not report this rank as dead as well.
  ~FailureDetector();
  FailureDetector(const FailureDetector&) = delete;
  FailureDetector& operator=(const FailureDetector&) = delete;

  /// Whoever waits calls `serve` at each poll, for a sum that overtakes what it waits for: it does what can be done
  /// without waiting and says whether anything could. Before the first wait.
  void set_overtaking(std::function<bool()> serve) { serve_ = std::move(serve); }
  /// From here on such sums may come. From any thread.
  void expect_overtaking() noexcept { expects_overtaking_.store(true, std::memory_order_relaxed); }
  bool expects_overtaking() const noexcept { return expects_overtaking_.load(std::memory_order_relaxed); }
  /// Of a wait that is not wait_until_done(), in the thread that drives collectives.
  bool serve_overtaking() const { return expects_overtaking() && serve_(); }

  /// `rank` shows what it is doing at `page`. Before the first wait.
  void add_page(int rank, SharedControl& page);
  /// This rank waits no more, says farewell on its page, and the pages go.
  void forget_pages() noexcept;

  MpiSession::State& state() const noexcept { return state_; }
  const PeerTable& peers() const noexcept { return peers_; }
  double deadline_seconds() const noexcept { return deadline_seconds_; }

  /// A collective begins: they are counted, to tell who is in another one.
  void enter() noexcept { ++sequence_, awaited_ = -1; }
  /// What comes next in it comes from `rank`; -1: from several.
  void await(int rank) noexcept { awaited_ = rank; }
  int awaited() const noexcept { return awaited_; }
  /// Calls `advance` until it says done, resting in between as above.
  template <class Advance>
  void wait_until_done(Collective operation, Advance advance);
  /// Waits for the requests, none of which receives a message.
  void wait_for(std::span<MPI_Request> requests, Collective operation);
  /// Everybody in the session takes part; MPI's own way, waited for as everything else.
  void broadcast(std::span<std::byte> data, int root);
  /// Whether a wait may keep its core busy for a while.
  bool may_spin() const noexcept { return !oversubscribed_ && urgency_.urgent(); }
  /// One look aside during a wait, every 0.1 s or so: has anybody died, reported, or run out of time? Charges the
  /// patience of this wait; throws PeerError. `missing`: the ranks that are waited for, where all of them have pages.
  void look_around(Collective operation, Patience& patience, std::span<const int> missing = {});
  /// A call of MPI has failed. Throws PeerError where a peer has died, which is why: it may be some time until this can
  /// be seen.
  void blame_the_dead();
  /// `peer` sent `got` bytes (-1: a longer message) where `expected` were to come.
  [[noreturn]] void diverged(Collective operation, int peer, std::int64_t got, std::size_t expected);

  /// As in Communicator.
  void note_activity(const char* what, std::int64_t step) noexcept;
  void begin_long_operation(const char* what);
  void end_long_operation() noexcept;
  double set_deadline(double seconds) noexcept;
  bool look_at_peers();
  /// As Communicator::dead_peers.
  std::vector<int> dead_peers() const;
  /// As Communicator::note_wait. From any thread.
  void note_wait(std::string_view text);
  /// This process ends on its own account: peers need not report it as dead. From any thread.
  void take_leave() noexcept;
  /// Another thread than the one that made this calls MPI from here on, or does no longer.
  void set_driven(bool driven) noexcept { driven_.store(driven, std::memory_order_relaxed); }
  /// For a wait that begins.
  Patience patience() const { return Patience(deadline_seconds_, excuse_seconds_); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kLookInterval{100};

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

  /// After a poll without progress, the `idle`-th in a row; where nobody waits for the result and computation wants all
  /// cores asleep at once, for longer and longer (50 to 200 us).
  void rest(Backoff& backoff, int idle) const;
  Backoff::Pace pace() const noexcept;
  void show_farewell() noexcept;
  /// Throws when a peer that has not taken leave is dead, and not because the launcher ends the job already.
  void look_for_the_dead();
  /// From the watch's thread: ends the job where a wait is kept in MPI.
  void look_for_a_kept_wait();
  /// It has taken leave, or reported: in order, or with an error of its own.
  bool has_left(int rank) const;
  /// It is dead, but what it said before may still be on its way. Waits for a moment.
  bool says_farewell_late(int rank);
  /// Not because it has seen another die.
  bool anybody_left_on_own_account() const;
  void report_waiting(Collective operation, double waited);
  /// Asks everybody where they stand and throws who is to blame.
  [[noreturn]] void fail_after_reports(Collective operation, double waited);
  /// "rank 1 (host …) has not arrived at an all-reduce for 3 s; …": the first few of them. Marks them as suspects.
  std::string describe_missing(std::span<const int> ranks, Collective operation, double waited);
  SharedControl* page(int rank) const { return pages_[static_cast<std::size_t>(rank)]; }
  bool is_busy(int rank) const;
  /// What the rank was last seen in, or what its peers do meanwhile.
  std::string whereabouts(int rank, const char* peers_do) const;
  std::string own_activity() const;
  /// What else than its peers the rank waits for, as it says itself; "": nothing.
  std::string wait_of(int rank) const;
  /// Why it does not come, as far as can be seen: one sentence.
  std::string explanation_of(int rank) const;
  /// The state of its process, as seen from here or as a rank on its machine has reported it.
  ProcessState seen_of(int rank) const;
  std::string verdict(Collective operation, double waited);

  MpiSession::State& state_;
  PeerTable peers_;
  StatusChannel status_;
  std::vector<SharedControl*> pages_;  ///< of each rank; nullptr: none
  bool by_messages_ = true;            ///< some peer has no page
  double deadline_seconds_, excuse_seconds_;
  std::function<void()> while_waiting_;
  const Urgency& urgency_;
  std::function<bool()> serve_;
  std::atomic<bool> expects_overtaking_{false};
  bool oversubscribed_;
  bool has_own_core_;           ///< the thread that drives collectives, beside those that compute
  std::uint64_t sequence_ = 0;  ///< collectives entered
  int awaited_ = -1;            ///< whose data the present one waits for
  std::atomic<const char*> activity_{"the start"};
  std::atomic<std::int64_t> step_{-1};
  std::atomic<bool> driven_{false};
  std::atomic<bool> waits_{false};
  std::atomic<std::uint64_t> polls_{0};            ///< of waits
  std::uint64_t polls_seen_ = 0;                   ///< by the watch's thread
  int standstills_ = 0;                            ///< its looks in a row that saw a wait without a poll
  std::optional<Clock::time_point> end_of_grace_;  ///< of a death after somebody has left
  LeaveTaking::Word leave_;
  std::optional<std::list<ConnectionWatch::Look>::iterator> look_;
};

template <class Advance>
void FailureDetector::wait_until_done(Collective operation, Advance advance) {
  std::optional<Patience> patience;  // from the first idle polls on: a transfer that flows never asks for the time
  Clock::time_point next_look;
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
    idle = std::min(idle + 1, 1 << 20);
    rest(backoff, idle);
    const Clock::time_point now = Clock::now();
    if (!patience) {
      patience.emplace(this->patience());
      next_look = now + kLookInterval;
    } else if (now >= next_look) {
      look_around(operation, *patience);
      next_look = now + kLookInterval;
    }
  }
}

}  // namespace lockstep::comm
