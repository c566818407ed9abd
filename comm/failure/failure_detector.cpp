#include "comm/failure/failure_detector.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "comm/failure/ending_signal.hpp"

namespace lockstep::comm {
namespace {

/// A wait without polls for this many looks of the watch, 0.1 s apart, counts as blocked. The launcher gives a job one
/// second after a rank has died.
constexpr int kKept = 4;

/// Time for which a rank out of patience listens for the reports of others. Also the time for the launcher to end this
/// rank after it has ended another.
constexpr std::chrono::milliseconds kGrace{1500};

/// Longest time until the end of a process becomes visible, from the first message to it that fails.
constexpr std::chrono::milliseconds kUntilSeen{300};

/// Longest time until a dead rank's last message is seen here: this rank may just have been woken up.
constexpr std::chrono::milliseconds kFarewellTime{30};

}  // namespace

FailureDetector::FailureDetector(MpiSession::State& state, PeerTable peers, const CommunicatorOptions& options,
                                 const Urgency& urgency)
    : state_(state),
      peers_(std::move(peers)),
      status_(state, options.deadline_seconds),
      pages_(static_cast<std::size_t>(state.size)),
      deadline_seconds_(options.deadline_seconds),
      excuse_seconds_(options.excuse_seconds),
      while_waiting_(options.while_waiting),
      urgency_(urgency),
      oversubscribed_(peers_.oversubscribed()),
      has_own_core_(peers_.cores_left(options.threads + 1) >= 0),
      leave_(state.leave_taking->add([this] { take_leave(); })) {
  // If the others continue without the dead, the launcher ends nobody.
  if (state.connections && !while_waiting_) {
    look_ = state.connections->add_look([this] { find_blocked_wait(); });
  }
}

FailureDetector::~FailureDetector() {
  if (look_) state_.connections->remove_look(*look_);
  state_.leave_taking->remove(leave_);
  if (std::uncaught_exceptions() > 0) take_leave();
}

void FailureDetector::show_farewell() noexcept {
  if (SharedControl* const own = page(state_.rank)) {
    own->farewell.store(state_.suspects->dead() == -1 ? Farewell::own_account : Farewell::of_witness);
  }
}

void FailureDetector::take_leave() noexcept {
  show_farewell();
  if (by_messages_ && !driven_.load(std::memory_order_relaxed)) status_.take_leave();
}

void FailureDetector::forget_pages() noexcept {
  show_farewell();
  if (SharedControl* const own = page(state_.rank)) forget_ending_signal_on(*own);
  std::ranges::fill(pages_, nullptr);
}

void FailureDetector::add_page(int rank, SharedControl& page) {
  pages_[static_cast<std::size_t>(rank)] = &page;
  if (rank == state_.rank) show_ending_signal_on(page);
  by_messages_ = std::ranges::find(pages_, nullptr) != pages_.end();
}

// Waits ---------------------------------------------------------------------------------------------------------------

Backoff::Pace FailureDetector::pace() const noexcept {
  using std::chrono::microseconds;
  return {.spin = microseconds(oversubscribed_ ? 0 : 10),
          .yield = microseconds(2000),
          .sleep = microseconds(50),
          .ceiling = microseconds(1000)};
}

void FailureDetector::rest(Backoff& backoff, int idle) const {
  if (urgency_.urgent() || has_own_core_) return backoff.pause();
  constexpr std::chrono::microseconds kFirst{50};
  urgency_.sleep_unless_urgent(kFirst * (1 << std::min(idle - 1, 2)));  // rare events are polled rarely
}

void FailureDetector::wait_for(std::span<MPI_Request> requests, Collective operation) {
  wait_until_done(operation, [&] {
    int complete = 0;
    const std::lock_guard lock(*state_.mpi);
    check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &complete, MPI_STATUSES_IGNORE),
          "MPI_Testall", state_);
    return complete ? Progress::done : Progress::none;
  });
}

void FailureDetector::broadcast(std::span<std::byte> data, int root) {
  // Each piece that arrives is progress: over 100 Mbit/s a piece takes a second and a half. Two are under way at once,
  // so that the ranks between the root and the last keep their links busy.
  constexpr std::size_t kPiece = std::size_t{16} << 20;
  std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  std::size_t offset = 0, pieces = 0;
  do {
    const std::span<std::byte> piece = data.subspan(offset, std::min(kPiece, data.size() - offset));
    const std::span<MPI_Request> request = std::span(requests).subspan(pieces++ % requests.size(), 1);
    wait_for(request, Collective::broadcast);
    const std::lock_guard lock(*state_.mpi);
    check(MPI_Ibcast(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, root, state_.data, request.data()),
          "MPI_Ibcast", state_);
    offset += piece.size();
  } while (offset < data.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    wait_for(std::span(requests).subspan(pieces++ % requests.size(), 1), Collective::broadcast);
  }
}

void FailureDetector::find_deaths() {
  for (int peer = 0; peer < state_.size; ++peer) {
    if (peer == state_.rank) continue;
    if (!state_.is_disconnected(peer) && peers_.process_state(peer) != ProcessState::gone) continue;
    // It left in order, or with an error of its own: then the launcher ends this rank, too.
    if (has_left(peer)) continue;
    if (!anybody_left_on_own_account() && farewell_is_late(peer)) continue;
    // A rank has failed by an error of its own, and the launcher ends the others in sequence: this rank is next.
    if (anybody_left_on_own_account()) {
      if (!end_of_grace_) end_of_grace_ = Clock::now() + kGrace;
      if (Clock::now() < *end_of_grace_) continue;
    }
    state_.suspects->mark_dead(state_.first_rank + peer);
    if (const int signal = page(peer) ? static_cast<int>(page(peer)->ended_by.load()) : 0; signal != 0) {
      throw PeerError(fmt::format("{} has been ended by {}; {}. Ending the job.", peers_.describe(peer),
                                  signal_name(signal), whereabouts(peer, "are")));
    }
    throw PeerError(fmt::format("{} has died; {}. Its host's system log may say why (out of memory?). Ending the job.",
                                peers_.describe(peer), whereabouts(peer, "are")));
  }
}

void FailureDetector::blame_deaths() {
  for (const auto end = Clock::now() + kUntilSeen; Clock::now() < end;) {
    find_deaths();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void FailureDetector::find_blocked_wait() {
  const std::uint64_t polls = polls_.load(std::memory_order_relaxed);
  const bool stands_still = waits_.load(std::memory_order_relaxed) && polls == polls_seen_;
  polls_seen_ = polls;
  standstills_ = stands_still ? standstills_ + 1 : 0;
  if (standstills_ < kKept) return;
  int peer = 0;
  while (peer < state_.size && !state_.is_disconnected(peer)) ++peer;
  if (peer == state_.size) return;
  state_.suspects->mark_dead(state_.first_rank + peer);
  const PeerError error(
      fmt::format("{} has died; its peers are in {}. Its host's system log may say why (out of memory?). "
                  "Ending the job.",
                  peers_.describe(peer), own_activity()));
  _exit(state_.failure_handler ? state_.failure_handler(std::make_exception_ptr(error)) : 1);
}

std::vector<int> FailureDetector::dead_peers() const {
  std::vector<int> dead;
  for (int peer = 0; peer < state_.size; ++peer) {
    if (peer == state_.rank || has_left(peer)) continue;
    if (state_.is_disconnected(peer) || peers_.process_state(peer) == ProcessState::gone) dead.push_back(peer);
  }
  return dead;
}

bool FailureDetector::has_left(int rank) const {
  return status_.report(rank).has_value() || (page(rank) && page(rank)->farewell.load() != Farewell::none);
}

bool FailureDetector::farewell_is_late(int rank) {
  if (!by_messages_) return false;
  for (const auto end = Clock::now() + kFarewellTime; Clock::now() < end && !has_left(rank);) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    status_.poll();
  }
  return has_left(rank);
}

bool FailureDetector::anybody_left_on_own_account() const {
  for (int peer = 0; peer < state_.size; ++peer) {
    if (page(peer) && page(peer)->farewell.load() == Farewell::own_account) return true;
    const auto& report = status_.report(peer);
    if (report && report->kind == Report::Kind::leaving && report->witnessed == -1) return true;
  }
  return false;
}

std::string FailureDetector::whereabouts(int rank, const char* peers_do) const {
  const std::string wait = wait_of(rank);
  if (page(rank)) return fmt::format("last seen in {}{}{}", page(rank)->last_seen(), wait.empty() ? "" : ", ", wait);
  return wait.empty() ? fmt::format("its peers {} in {}", peers_do, own_activity())
                      : fmt::format("last heard of in {}, {}", own_activity(), wait);
}

std::string FailureDetector::wait_of(int rank) const {
  return page(rank) ? page(rank)->wait_text() : status_.wait_of(rank);
}

std::string FailureDetector::explanation_of(int rank) const {
  const ProcessState state = seen_of(rank);
  const bool lives = state != ProcessState::stopped && state != ProcessState::gone;
  return lives && !wait_of(rank).empty() ? "The file system that it waits for is slow, or does not answer."
                                         : explanation(state);
}

bool FailureDetector::is_busy(int rank) const {
  if (!page(rank) || page(rank)->in_long_operation.load(std::memory_order_relaxed) == 0) return false;
  const ProcessState state = peers_.process_state(rank);
  return state != ProcessState::stopped && state != ProcessState::gone;
}

void FailureDetector::watch_peers(Collective operation, Patience& patience, std::span<const int> missing) {
  if (while_waiting_) while_waiting_();
  if (by_messages_) status_.poll();
  find_deaths();
  if (!by_messages_) {
    const bool excused = std::ranges::all_of(missing, [this](int rank) { return is_busy(rank); });
    if (!patience.exhausted(excused) || missing.empty()) return;
    throw PeerError(describe_missing(missing, operation, patience.waited()) + "Ending the job.");
  }
  const bool leaving = status_.anybody_leaves();
  const bool out_of_patience = patience.exhausted(status_.anybody_is_busy());
  if (out_of_patience || (!leaving && status_.anybody_reports())) fail_after_reports(operation, patience.waited());
}

std::string FailureDetector::describe_missing(std::span<const int> ranks, Collective operation, double waited) {
  std::vector<int> in_the_job(ranks.begin(), ranks.end());
  for (int& rank : in_the_job) rank += state_.first_rank;
  state_.suspects->mark(in_the_job);
  constexpr std::size_t kNamed = 4;
  std::string text;
  for (const int rank : ranks.first(std::min(kNamed, ranks.size()))) {
    text += fmt::format("{} has not arrived at {} for {} s; {}. {} ", peers_.describe(rank), with_article(operation),
                        seconds_text(waited), whereabouts(rank, "wait"), explanation_of(rank));
  }
  if (ranks.size() > kNamed) text += fmt::format("The same goes for {} more ranks. ", ranks.size() - kNamed);
  return text;
}

void FailureDetector::report_waiting(Collective operation, double waited) {
  Report report{.kind = Report::Kind::waiting,
                .operation = static_cast<std::int32_t>(operation),
                .sequence = sequence_,
                .waited = waited,
                .step = step_.load()};
  for (int peer = 0; peer < state_.size && report.witnessed < 0; ++peer) {
    const ProcessState state = peer == state_.rank ? ProcessState::running : peers_.process_state(peer);
    if (state == ProcessState::running || state == ProcessState::out_of_sight) continue;
    report.witnessed = peer;
    report.witnessed_state = static_cast<std::int32_t>(state);
  }
  std::strncpy(report.activity, activity_.load(), sizeof(report.activity) - 1);
  status_.send(report);
}

std::string FailureDetector::own_activity() const {
  const std::int64_t step = step_.load();
  return step < 0 ? activity_.load() : fmt::format("step {}: {}", step, activity_.load());
}

void FailureDetector::fail_after_reports(Collective operation, double waited) {
  report_waiting(operation, waited);
  const auto everybody_reported = [&] {
    for (int peer = 0; peer < state_.size; ++peer) {
      if (peer != state_.rank && !status_.report(peer)) return false;
    }
    return true;
  };
  const auto end = Clock::now() + kGrace + kCheckInterval * status_.most_hops();
  while (Clock::now() < end && !everybody_reported()) {
    status_.poll();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  throw PeerError(verdict(operation, waited));
}

ProcessState FailureDetector::seen_of(int rank) const {
  if (peers_.same_machine(rank)) return peers_.process_state(rank);
  for (int witness = 0; witness < state_.size; ++witness) {
    const auto& report = status_.report(witness);
    if (report && report->witnessed == rank) return static_cast<ProcessState>(report->witnessed_state);
  }
  return ProcessState::out_of_sight;
}

std::string FailureDetector::verdict(Collective operation, double waited) {
  double longest = waited;
  std::vector<int> silent;
  for (int peer = 0; peer < state_.size; ++peer) {
    if (peer == state_.rank) continue;
    if (const auto& report = status_.report(peer)) {
      longest = std::max(longest, report->waited);
    } else {
      silent.push_back(peer);
    }
  }
  if (!silent.empty()) return describe_missing(silent, operation, longest) + "Ending the job.";

  std::string text;
  // All ranks answer. A rank came late, or the ranks are in different collectives, or data does not get through.
  for (int peer = 0; peer < state_.size; ++peer) {
    const auto& report = status_.report(peer);
    const double theirs = peer == state_.rank ? waited : report ? report->waited : 0;
    if (theirs < longest / 2) {
      text += fmt::format("{} arrived at {} only after its peers had waited for {} s; ", peers_.describe(peer),
                          with_article(operation), seconds_text(longest));
    }
  }
  if (!text.empty()) return text + "if it needs that long, raise the deadline. Ending the job.";
  for (int peer = 0; peer < state_.size; ++peer) {
    const auto& report = status_.report(peer);
    if (!report || (report->sequence == sequence_ && report->operation == static_cast<std::int32_t>(operation)))
      continue;
    return fmt::format(
        "the ranks have diverged: {} is in {} (its collective number {}), {} in {} (number {}). "
        "Ending the job.",
        peers_.describe(peer), with_article(static_cast<Collective>(report->operation)), report->sequence,
        peers_.describe(state_.rank), with_article(operation), sequence_);
  }
  return fmt::format(
      "{} has got no data from {} in {} for {} s although every rank answers: the network between two hosts "
      "loses large messages. Ending the job.",
      peers_.describe(state_.rank), awaited_ < 0 ? "its peers" : peers_.describe(awaited_), with_article(operation),
      seconds_text(longest));
}

void FailureDetector::diverged(Collective operation, int peer, std::int64_t got, std::size_t expected) {
  throw PeerError(
      fmt::format("the ranks have diverged: {} sent {} to {}, which is in {} and expects {} bytes; {}. "
                  "Ending the job.",
                  peers_.describe(peer), got < 0 ? "a longer message" : fmt::format("{} bytes", got),
                  peers_.describe(state_.rank), with_article(operation), expected, own_activity()));
}

// Activity ------------------------------------------------------------------------------------------------------------

void FailureDetector::note_activity(const char* what, std::int64_t step) noexcept {
  activity_.store(what, std::memory_order_relaxed);
  step_.store(step, std::memory_order_relaxed);
  if (SharedControl* const own = page(state_.rank)) {
    own->step.store(step, std::memory_order_relaxed);
    own->set_activity(what);
  }
}

void FailureDetector::note_wait(std::string_view text) {
  if (SharedControl* const own = page(state_.rank)) own->set_wait(text);
  if (by_messages_) status_.set_wait(text);
}

void FailureDetector::begin_long_operation(const char* what) {
  if (what) activity_.store(what, std::memory_order_relaxed);
  if (SharedControl* const own = page(state_.rank)) {
    if (what) own->set_activity(what);
    own->in_long_operation.store(1, std::memory_order_relaxed);
  }
  if (by_messages_) status_.start_heartbeat();
}

void FailureDetector::end_long_operation() noexcept {
  if (SharedControl* const own = page(state_.rank)) own->in_long_operation.store(0, std::memory_order_relaxed);
  if (by_messages_) status_.stop_heartbeat();
}

double FailureDetector::set_deadline(double seconds) noexcept { return std::exchange(deadline_seconds_, seconds); }

bool FailureDetector::check_peers() {
  if (by_messages_) status_.poll();
  find_deaths();
  if (by_messages_) return status_.anybody_is_busy();
  for (int peer = 0; peer < state_.size; ++peer) {
    if (peer != state_.rank && is_busy(peer)) return true;
  }
  return false;
}

}  // namespace lockstep::comm
