#include "comm/failure/status_channel.hpp"

#include <algorithm>

namespace lockstep::comm {
namespace {

constexpr int kStatusTag = 1;
/// Undelivered messages kept; a peer that takes none in will not miss another.
constexpr std::size_t kMostOutgoing = 4;

}  // namespace

StatusChannel::StatusChannel(MpiSession::State& state, double deadline_seconds)
    : state_(state), period_(std::min(deadline_seconds / 4, 5.0)), reports_(static_cast<std::size_t>(state.size)) {}

StatusChannel::~StatusChannel() {
  stop_heartbeat();
  // Messages of this size have left their buffers when MPI_Isend returns; what is left belongs to a dying job.
  for (Outgoing& message : outgoing_) {
    for (MPI_Request& request : message.requests) {
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    }
  }
}

void StatusChannel::poll() {
  for (;;) {
    int there = 0;
    MPI_Status status;
    check(MPI_Iprobe(MPI_ANY_SOURCE, kStatusTag, state_.status, &there, &status), "MPI_Iprobe", state_);
    if (!there) break;
    Report report;
    check(MPI_Recv(&report, sizeof(report), MPI_BYTE, status.MPI_SOURCE, kStatusTag, state_.status, MPI_STATUS_IGNORE),
          "MPI_Recv", state_, status.MPI_SOURCE);
    if (report.kind == Report::Kind::alive) {
      last_heartbeat_ = std::chrono::steady_clock::now();
    } else {
      reports_[static_cast<std::size_t>(status.MPI_SOURCE)] = report;
    }
  }
  forget_delivered();
}

void StatusChannel::forget_delivered() {
  outgoing_.remove_if([this](Outgoing& message) {
    int done = 0;
    check(MPI_Testall(static_cast<int>(message.requests.size()), message.requests.data(), &done, MPI_STATUSES_IGNORE),
          "MPI_Testall", state_);
    return done != 0;
  });
}

void StatusChannel::send(const Report& report) {
  forget_delivered();
  if (report.kind == Report::Kind::alive && outgoing_.size() >= kMostOutgoing) return;
  Outgoing& message = outgoing_.emplace_back();
  message.report = report;
  for (int peer = 0; peer < state_.size; ++peer) {
    if (peer == state_.rank) continue;
    check(MPI_Isend(&message.report, sizeof(Report), MPI_BYTE, peer, kStatusTag, state_.status,
                    &message.requests.emplace_back(MPI_REQUEST_NULL)),
          "MPI_Isend", state_, peer);
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
  return last_heartbeat_ && std::chrono::steady_clock::now() - *last_heartbeat_ < 3 * period_;
}

void StatusChannel::start_heartbeat() {
  thread_ = std::jthread([this](const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    try {
      while (!wake_.wait_for(lock, stop, period_, [&] { return stop.stop_requested(); })) send(Report{});
    } catch (const std::exception&) {  // MPI fails: the main thread will meet the same error in its next call
    }
  });
}

void StatusChannel::stop_heartbeat() noexcept {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

}  // namespace lockstep::comm
