#include "comm/failure/status_channel.hpp"

#include <algorithm>
#include <bit>
#include <csignal>
#include <memory>
#include <set>
#include <utility>

#include "comm/session/doubling.hpp"

namespace lockstep::comm {
namespace {

constexpr int kStatusTag = 1;
/// Largest number of undelivered messages: a peer that takes none will not miss another.
constexpr std::size_t kMaxOutgoing = 4;

std::vector<int> contacts_of(const MpiSession::State& state) {
  std::set<int> contacts{(state.rank + 1) % state.size, (state.rank + state.size - 1) % state.size};
  for (const DoublingRound& round : doubling_rounds(state.size, state.rank)) {
    contacts.insert(round.from);
    contacts.insert(round.receiving().begin(), round.receiving().end());
  }
  const PeerTable peers(state.rank, state.peers);
  for (int peer = 0; peer < state.size; ++peer) {
    if (peers.process_state(peer) != ProcessState::out_of_sight) contacts.insert(peer);
  }
  contacts.erase(state.rank);
  return {contacts.begin(), contacts.end()};
}

}  // namespace

StatusChannel::StatusChannel(MpiSession::State& state, double deadline_seconds)
    : state_(state),
      period_(std::min(deadline_seconds / 4, 5.0)),
      contacts_(contacts_of(state)),
      most_hops_(std::bit_width(static_cast<unsigned>(state.size - 1))),
      reports_(static_cast<std::size_t>(state.size)),
      heartbeats_(reports_.size()) {
  state_.last_reports.resize(reports_.size());
}

StatusChannel::~StatusChannel() {
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
  }
  {
    const std::lock_guard lock(*state_.mpi);
    try {
      forget_delivered();
    } catch (const std::exception&) {  // then all of them are kept
    }
  }
  // A peer may receive an outstanding message at any time until MPI ends.
  if (!outgoing_.empty()) state_.kept->add(std::make_shared<std::list<Outgoing>>(std::move(outgoing_)));
}

void StatusChannel::poll() {
  const std::lock_guard lock(*state_.mpi);
  for (;;) {
    int there = 0;
    MPI_Status status;
    check(MPI_Iprobe(MPI_ANY_SOURCE, kStatusTag, state_.status, &there, &status), "MPI_Iprobe", state_);
    if (!there) break;
    Report report;
    check(MPI_Recv(&report, sizeof(report), MPI_BYTE, status.MPI_SOURCE, kStatusTag, state_.status, MPI_STATUS_IGNORE),
          "MPI_Recv", state_, status.MPI_SOURCE);
    if (report.origin < 0 || report.origin >= state_.size || report.origin == state_.rank) continue;
    std::uint32_t& last = state_.last_reports[static_cast<std::size_t>(report.origin)];
    if (report.serial <= last) continue;  // it has arrived by another path
    last = report.serial;
    report.wait[sizeof(report.wait) - 1] = '\0';
    take_in(report);
    send_to_contacts(report, status.MPI_SOURCE);
  }
  forget_delivered();
}

void StatusChannel::take_in(const Report& report) {
  const auto origin = static_cast<std::size_t>(report.origin);
  if (report.kind == Report::Kind::alive) {
    heartbeats_[origin] = {Clock::now(), report.wait};
  } else {
    reports_[origin] = report;
  }
}

void StatusChannel::forget_delivered() {
  outgoing_.remove_if([this](Outgoing& message) {
    return std::ranges::all_of(message.requests, [](MPI_Request& request) {
      int done = 0;
      if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS) return done != 0;
      request = MPI_REQUEST_NULL;  // its receiver has died
      return true;
    });
  });
}

void StatusChannel::send(Report report) {
  const std::lock_guard lock(*state_.mpi);
  report.origin = state_.rank;
  report.serial = ++state_.last_reports[static_cast<std::size_t>(state_.rank)];
  send_to_contacts(report, -1);
}

void StatusChannel::send_to_contacts(const Report& report, int source) {
  forget_delivered();
  if (report.kind == Report::Kind::alive && outgoing_.size() >= kMaxOutgoing) return;
  Outgoing& message = outgoing_.emplace_back();
  message.report = report;
  for (const int peer : contacts_) {
    if (peer == source || peer == report.origin) continue;
    MPI_Request& request = message.requests.emplace_back(MPI_REQUEST_NULL);
    const int code = MPI_Isend(&message.report, sizeof(Report), MPI_BYTE, peer, kStatusTag, state_.status, &request);
    if (code != MPI_SUCCESS) request = MPI_REQUEST_NULL;  // its receiver has died; the others still get the message
  }
}

bool StatusChannel::anybody_reports() const {
  return std::any_of(reports_.begin(), reports_.end(), [](const auto& report) { return report.has_value(); });
}

bool StatusChannel::anybody_leaves() const {
  return std::any_of(reports_.begin(), reports_.end(),
                     [](const auto& report) { return report && report->kind == Report::Kind::leaving; });
}

bool StatusChannel::anybody_is_busy() const {
  return std::ranges::any_of(heartbeats_, [this](const auto& heard) { return heard && lately(heard->at); });
}

std::string StatusChannel::wait_of(int rank) const {
  const auto& heard = heartbeats_[static_cast<std::size_t>(rank)];
  return heard && lately(heard->at) ? heard->wait : "";
}

void StatusChannel::set_wait(std::string_view text) {
  const std::lock_guard lock(wait_mutex_);
  wait_ = text;
}

void StatusChannel::start_heartbeat() {
  if (!thread_.joinable()) {
    // Only the main thread handles signals.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::jthread([this](const std::stop_token& stop) { send_heartbeats(stop); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  const std::lock_guard lock(mutex_);
  beats_ = true;
}

void StatusChannel::send_heartbeats(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, stop, period_, [&] { return stop.stop_requested(); })) {
    if (!beats_) continue;
    try {
      Report report;
      {
        const std::lock_guard wait_lock(wait_mutex_);
        wait_.copy(report.wait, sizeof(report.wait) - 1);
      }
      send(report);
    } catch (const std::exception&) {  // MPI fails: the main thread will get the same error in its next call
      beats_ = false;
    }
  }
}

void StatusChannel::stop_heartbeat() noexcept {
  const std::lock_guard lock(mutex_);
  beats_ = false;
}

void StatusChannel::take_leave() noexcept {
  const std::lock_guard lock(mutex_);
  if (!beats_ && std::this_thread::get_id() != owner_) return;
  try {
    int dead = state_.suspects->dead();
    if (dead >= 0) {
      dead -= state_.first_rank;
      if (dead < 0 || dead >= state_.size) dead = Suspects::kUnknownRank;  // a rank of another group
    }
    send(Report{.kind = Report::Kind::leaving,
                .witnessed = dead,
                .witnessed_state = static_cast<std::int32_t>(dead == -1 ? ProcessState::running : ProcessState::gone)});
  } catch (const std::exception&) {  // the peers will find out by themselves
  }
}

}  // namespace lockstep::comm
