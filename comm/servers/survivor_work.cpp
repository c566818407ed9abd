#include "comm/servers/survivor_work.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/session/mpi_state.hpp"

namespace lockstep::comm {

namespace {

/// Ranks that die within this time of each other are left out together, for example those of a host without free
/// memory.
constexpr std::chrono::milliseconds kTogether{500};
/// Longest time until some rank sees the death that made an MPI call fail here.
constexpr std::chrono::seconds kUntilSeen{10};

/// The peers of rank 0 are all other ranks, in order; the only peer of any other rank is rank 0.
ServerMessages::Options judging_options(const MpiSession& session, HostWindow& window) {
  using Lane = ServerMessages::Lane;
  const bool judges = session.rank() == 0;
  ServerMessages::Options options{.send = judges ? Lane::from_judge : Lane::to_judge,
                                  .receive = judges ? Lane::to_judge : Lane::from_judge,
                                  .peers = {},
                                  .window = &window};
  for (int rank = judges ? 1 : 0; rank < (judges ? session.size() : 1); ++rank) options.peers.push_back(rank);
  return options;
}

}  // namespace

SurvivorWork::SurvivorWork(MpiSession& session, SurvivorCommunicator& communicator, HostWindow& window, Options options)
    : session_(session),
      communicator_(communicator),
      options_(std::move(options)),
      messages_(session, judging_options(session, window)),
      waiting_(window, {.end = HostWindow::End::worker,
                        .messages = {&messages_},
                        .limit_seconds = options_.limit_seconds,
                        .watch_peers = [this] { return watch_peers(); }}) {
  communicator_.set_while_waiting([this] { watch_while_waiting(); });
}

SurvivorWork::~SurvivorWork() { communicator_.set_while_waiting({}); }

std::vector<int> SurvivorWork::run(const std::function<void()>& work, const std::vector<int>& known_dead) {
  std::vector<int> all;
  if (session_.size() == 1) {
    work();
    return all;
  }
  for (;;) {
    ++attempt_;
    dead_.clear();
    reported_deaths_ = 0;
    reported_.clear();
    verdict_.reset();
    whole_ = true;
    add_dead(known_dead);
    working_ = dead_.empty();
    const bool whole = working_ && attempt(work);
    working_ = false;
    whole_ = whole_ && whole;
    const bool done = judges() ? judge() : request_verdict();
    if (!dead_.empty()) {
      std::vector<int> living;
      for (int rank = 0; rank < communicator_.size(); ++rank) {
        const int of_job = communicator_.job_rank(rank);
        if (!dead_.contains(of_job)) living.push_back(of_job);
      }
      communicator_.go_on_with(living);
      all.insert(all.end(), dead_.begin(), dead_.end());
    }
    if (!done) continue;
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    return all;
  }
}

/// Returns false if a rank has died during the work.
bool SurvivorWork::attempt(const std::function<void()>& work) {
  error_ = nullptr;
  try {
    work();
  } catch (const MpiCallError&) {
    if (!somebody_has_died()) throw;
    return false;
  } catch (const PeerError&) {
    find_deaths();
    if (dead_.empty() || !all_are_dispensable()) throw;
    return false;
  } catch (...) {
    error_ = std::current_exception();  // the same on all ranks unless a rank has died meanwhile
  }
  return true;
}

/// An MPI call has failed, most likely because of a death that another rank sees. Returns true if dispensable ranks
/// died.
bool SurvivorWork::somebody_has_died() {
  const auto end = std::chrono::steady_clock::now() + kUntilSeen;
  do {
    find_deaths();
    take_in();
    if (!dead_.empty()) return all_are_dispensable();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

/// Called by the thread that drives a collective.
void SurvivorWork::watch_while_waiting() {
  if (!working_) return;
  take_in();
  if (dead_.empty()) return;  // the communicator itself deals with deaths that this rank sees
  if (judges()) {
    expect_dispensable();
    report_deaths();
  }
  throw PeerError(
      fmt::format("{} has died, and a collective cannot end without it", session_.describe(*dead_.begin())));
}

/// Adds the deaths that this rank can see.
void SurvivorWork::find_deaths() { add_dead(communicator_.dead_peers()); }

void SurvivorWork::add_dead(const std::vector<int>& ranks) {
  for (const int rank : ranks) {
    if (communicator_.rank_of(rank) < 0 || !dead_.insert(rank).second) continue;
    last_death_ = std::chrono::steady_clock::now();
  }
}

bool SurvivorWork::all_are_dispensable() const { return std::ranges::all_of(dead_, options_.dispensable); }

/// Throws PeerError if one of the dead ranks is indispensable.
void SurvivorWork::expect_dispensable() {
  const auto missed = std::ranges::find_if_not(dead_, options_.dispensable);
  if (missed == dead_.end()) return;
  if (!working_) communicator_.check_peers();  // throws with the details of the death
  throw PeerError(
      fmt::format("{} has died, without which the others cannot go on. Ending the job: --resume goes on from the last "
                  "checkpoint.",
                  session_.describe(*missed)));
}

/// Processes the messages that have arrived. An MPI error means a death, which find_deaths() finds.
void SurvivorWork::take_in() {
  try {
    while (const auto message = messages_.poll()) {
      const MessageKind kind = message->header.kind;
      const std::vector<int> dead(message->values.begin(), message->values.end());
      if (!judges() && kind != MessageKind::give_up) {
        dead_ = {dead.begin(), dead.end()};
        verdict_ = kind == MessageKind::done;
        return;  // later messages belong to the next attempt
      }
      add_dead(dead);
      const int rank = message->peer + 1;
      if (!judges() || message->header.step != attempt_ || !reported_.insert(rank).second) continue;
      whole_ = whole_ && kind == MessageKind::done;
    }
  } catch (const MpiCallError&) {
  }
}

void SurvivorWork::send(int peer, MessageKind kind) {
  const std::vector<float> ranks(dead_.begin(), dead_.end());
  try {
    messages_.send(peer, {.kind = kind, .step = attempt_}, ranks);
  } catch (const MpiCallError&) {  // the peer has died
  }
}

/// Reports new deaths: rank 0 to the ranks that may wait for the dead, the others to rank 0.
void SurvivorWork::report_deaths() {
  if (reported_deaths_ == dead_.size()) return;
  reported_deaths_ = dead_.size();
  if (!judges()) return send(0, MessageKind::again);
  for (const int rank : awaited()) send(rank - 1, MessageKind::give_up);
}

/// Rank 0: the ranks that have not reported and are not known dead.
std::vector<int> SurvivorWork::awaited() const {
  std::vector<int> ranks;
  for (int rank = 1; rank < communicator_.size(); ++rank) {
    const int of_job = communicator_.job_rank(rank);
    if (!reported_.contains(of_job) && !dead_.contains(of_job)) ranks.push_back(of_job);
  }
  return ranks;
}

/// Called during a wait for the others' reports. Returns true if they are busy.
bool SurvivorWork::watch_peers() {
  find_deaths();
  report_deaths();
  try {
    return communicator_.check_peers();
  } catch (const MpiCallError&) {
  } catch (const PeerError&) {
    find_deaths();
    if (dead_.empty() || !all_are_dispensable()) throw;
  }
  return false;
}

/// Waits until `enough` is true. Throws PeerError if no message comes, or if an indispensable rank has died.
void SurvivorWork::receive_until(const std::function<bool()>& enough) {
  const auto poll = [&] {
    take_in();
    return enough() ? MessageWait::Poll::over : MessageWait::Poll::nothing;
  };
  if (waiting_.until(poll)) return;
  std::vector<std::string> silent;
  for (const int rank : judges() ? awaited() : std::vector<int>{0}) silent.push_back(session_.describe(rank));
  throw PeerError(
      fmt::format("{} has heard nothing of {} for {:.0f} s after a validation, a checkpoint or a round: look at what "
                  "they do, or give a longer --deadline or --io-deadline",
                  session_.describe(session_.rank()), fmt::join(silent, ", "), waiting_.waited()));
}

/// Rank 0: waits for all reports and sends the verdict with the dead ranks. Returns true if the work is done.
bool SurvivorWork::judge() {
  receive_until([this] {
    return awaited().empty() && (dead_.empty() || std::chrono::steady_clock::now() - last_death_ >= kTogether);
  });
  expect_dispensable();
  for (const int rank : dead_) messages_.forget(rank - 1);
  for (int peer = 0; peer < messages_.peers(); ++peer) send(peer, whole_ ? MessageKind::done : MessageKind::again);
  return whole_;
}

/// The other ranks: sends the report and waits for the verdict, which it returns.
bool SurvivorWork::request_verdict() {
  reported_deaths_ = dead_.size();
  send(0, whole_ ? MessageKind::done : MessageKind::again);
  receive_until([this] { return verdict_.has_value(); });
  return *verdict_;
}

}  // namespace lockstep::comm
