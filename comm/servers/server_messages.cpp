#include "comm/servers/server_messages.hpp"

#include <algorithm>
#include <climits>
#include <cstring>
#include <deque>
#include <list>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "comm/session/mpi_state.hpp"

namespace lockstep::comm {
namespace {

constexpr int kFirstServerTag = 81;  // of no collective

int server_tag(ServerMessages::Lane lane) { return kFirstServerTag + static_cast<int>(lane); }

HostWindow::End receiver_of(ServerMessages::Lane lane) {
  using Lane = ServerMessages::Lane;
  return lane == Lane::to_servers || lane == Lane::between_servers ? HostWindow::End::server : HostWindow::End::worker;
}

static_assert(static_cast<int>(ServerMessages::Lane::from_judge) + 1 == HostWindow::kLanes);
static_assert(sizeof(ServerNote) + sizeof(std::uint32_t) <= HostWindow::kNote);

}  // namespace

/// All memory that messages lie in.
struct ServerMessages::Lines {
  MpiSession::State& state;
  Options options;
  std::vector<std::vector<std::byte>> received;  ///< of each peer
  std::vector<MPI_Request> receives;
  std::optional<std::size_t> taken;  ///< whose message the caller reads: its receive is posted with the next poll
  std::size_t next = 0;              ///< peer that is looked at first: nobody is overheard for long
  struct Sent {
    std::vector<std::byte> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
    int peer = 0;
  };
  std::list<Sent> sent, spare;
  std::uint64_t bytes = 0;
  std::vector<bool> forgotten;
  std::vector<std::deque<std::vector<std::byte>>> left_over;  ///< for whom the mailbox is full
  bool uses_mpi = false;                                      ///< for some peer

  HostWindow& window() const { return *options.window; }
  bool near(std::size_t peer) const { return window().reaches(options.peers[peer]); }
  int lane_to() const { return static_cast<int>(options.send); }
  int lane_from() const { return static_cast<int>(options.receive); }
  void leave_what_is_left() {
    for (std::size_t peer = 0; peer < left_over.size(); ++peer) {
      auto& notes = left_over[peer];
      const bool any = !notes.empty();
      while (!notes.empty() && window().leave(options.peers[peer], lane_to(), notes.front(), {})) notes.pop_front();
      if (any) window().ring(options.peers[peer], receiver_of(options.send), HostWindow::Haste::at_once);
    }
  }
  Received received_of(std::size_t peer, std::span<const std::byte> data) {
    if (data.size() < sizeof(ServerNote)) {
      throw PeerError(
          fmt::format("a message of rank {} has {} bytes, fewer than its head; this is a bug in lockstep, "
                      "please report it",
                      options.peers[peer], data.size()));
    }
    next = (peer + 1) % options.peers.size();
    taken = peer;
    bytes += data.size();
    Received message{.peer = static_cast<int>(peer), .note = {}, .values = {}};
    std::memcpy(static_cast<void*>(&message.note), data.data(), sizeof message.note);
    message.values = {reinterpret_cast<const float*>(data.data() + sizeof message.note),
                      (data.size() - sizeof message.note) / sizeof(float)};
    return message;
  }

  void post(std::size_t peer) {
    check(MPI_Irecv(received[peer].data(), static_cast<int>(received[peer].size()), MPI_BYTE, options.peers[peer],
                    server_tag(options.receive), state.data, &receives[peer]),
          "MPI_Irecv", state, options.peers[peer]);
  }
  bool is_forgotten(int rank) const {
    const auto peer = std::ranges::find(options.peers, rank) - options.peers.begin();
    return forgotten[static_cast<std::size_t>(peer)];
  }
  /// What was sent to the forgotten stays, for MPI may still read it.
  void test_sent() {
    for (auto entry = sent.begin(); entry != sent.end();) {
      if (is_forgotten(entry->peer)) {
        ++entry;
        continue;
      }
      int done = 0;
      check(MPI_Test(&entry->request, &done, MPI_STATUS_IGNORE), "MPI_Test", state, entry->peer);
      const auto here = entry++;
      if (done) spare.splice(spare.end(), sent, here);
    }
  }
};

ServerMessages::ServerMessages(MpiSession& session, const Options& options)
    : lines_(std::make_shared<Lines>(Lines{.state = session.state(),
                                           .options = options,
                                           .received = {},
                                           .receives = {},
                                           .taken = {},
                                           .sent = {},
                                           .spare = {},
                                           .forgotten = {},
                                           .left_over = {}})) {
  for (std::size_t peer = 0; peer < options.peers.size(); ++peer) {
    const std::size_t most = options.most_values[peer];
    const std::size_t bytes = lines_->near(peer) ? 0 : sizeof(ServerNote) + most * sizeof(float);
    if (bytes > INT_MAX) {
      throw std::invalid_argument(
          fmt::format("{} parameters in one message are more than MPI can count: give more --servers", most));
    }
    lines_->received.emplace_back(bytes);
  }
  lines_->receives.assign(options.peers.size(), MPI_REQUEST_NULL);
  lines_->forgotten.assign(options.peers.size(), false);
  lines_->left_over.resize(options.peers.size());
  const std::lock_guard lock(*options.mpi);
  for (std::size_t peer = 0; peer < options.peers.size(); ++peer) {
    if (lines_->near(peer)) continue;
    lines_->post(peer);
    lines_->uses_mpi = true;
  }
}

ServerMessages::~ServerMessages() {
  const std::lock_guard lock(*lines_->options.mpi);
  call_back(lines_->receives);
  bool busy = !lines_->sent.empty();
  for (const MPI_Request& request : lines_->receives) busy = busy || request != MPI_REQUEST_NULL;
  if (busy) lines_->state.kept->add(lines_);
}

int ServerMessages::peers() const noexcept { return static_cast<int>(lines_->options.peers.size()); }

void ServerMessages::send(int peer, const ServerNote& note, std::span<const float> values, HostWindow::Haste haste) {
  Lines& lines = *lines_;
  const auto index = static_cast<std::size_t>(peer);
  if (lines.forgotten[index]) return;
  const std::span<const std::byte> head = std::as_bytes(std::span(&note, 1)), tail = std::as_bytes(values);
  lines.bytes += head.size() + tail.size();
  if (lines.near(index)) {
    if (head.size() + tail.size() > lines.window().most_bytes()) {
      throw std::invalid_argument(
          fmt::format("{} values are more than a mailbox of a host takes at a time", values.size()));
    }
    auto& before = lines.left_over[index];
    if (!before.empty() || !lines.window().leave(lines.options.peers[index], lines.lane_to(), head, tail)) {
      before.emplace_back(head.begin(), head.end());
      before.back().insert(before.back().end(), tail.begin(), tail.end());
    }
    return lines.window().ring(lines.options.peers[index], receiver_of(lines.options.send), haste);
  }
  if (lines.spare.empty()) lines.spare.emplace_back();
  Lines::Sent& entry = lines.spare.front();
  entry.bytes.resize(head.size() + tail.size());
  entry.peer = lines.options.peers[index];
  std::memcpy(entry.bytes.data(), head.data(), head.size());
  if (!tail.empty()) std::memcpy(entry.bytes.data() + head.size(), tail.data(), tail.size());
  lines.sent.splice(lines.sent.end(), lines.spare, lines.spare.begin());
  const std::lock_guard lock(*lines.options.mpi);
  check(MPI_Isend(entry.bytes.data(), static_cast<int>(entry.bytes.size()), MPI_BYTE, entry.peer,
                  server_tag(lines.options.send), lines.state.data, &entry.request),
        "MPI_Isend", lines.state, entry.peer);
}

std::optional<ServerMessages::Received> ServerMessages::poll() {
  Lines& lines = *lines_;
  const std::vector<int>& ranks = lines.options.peers;
  if (lines.taken && lines.near(*lines.taken)) {
    lines.window().take(ranks[*std::exchange(lines.taken, std::nullopt)], lines.lane_from());
  } else if (lines.taken) {
    const std::lock_guard lock(*lines.options.mpi);
    lines.post(*std::exchange(lines.taken, std::nullopt));
  }
  lines.leave_what_is_left();
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::size_t peer = (lines.next + i) % ranks.size();
    if (!lines.near(peer) || lines.forgotten[peer]) continue;
    const auto note = lines.window().note_of(ranks[peer], lines.lane_from());
    if (!note.empty()) return lines.received_of(peer, note);
  }
  if (!lines.uses_mpi) return std::nullopt;
  const std::lock_guard lock(*lines.options.mpi);
  lines.test_sent();
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::size_t peer = (lines.next + i) % ranks.size();
    if (lines.receives[peer] == MPI_REQUEST_NULL) continue;
    int done = 0, count = 0;
    MPI_Status status;
    check(MPI_Test(&lines.receives[peer], &done, &status), "MPI_Test", lines.state, ranks[peer]);
    if (!done) continue;
    check(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count", lines.state, ranks[peer]);
    return lines.received_of(peer, std::span(lines.received[peer]).first(static_cast<std::size_t>(count)));
  }
  return std::nullopt;
}

bool ServerMessages::all_sent() {
  lines_->leave_what_is_left();
  for (const auto& notes : lines_->left_over) {
    if (!notes.empty()) return false;
  }
  if (!lines_->uses_mpi) return true;
  const std::lock_guard lock(*lines_->options.mpi);
  lines_->test_sent();
  return std::ranges::all_of(lines_->sent, [this](const Lines::Sent& sent) { return lines_->is_forgotten(sent.peer); });
}

std::uint64_t ServerMessages::bytes() const noexcept { return lines_->bytes; }

void ServerMessages::forget(int peer) {
  Lines& lines = *lines_;
  const auto index = static_cast<std::size_t>(peer);
  const std::lock_guard lock(*lines.options.mpi);
  lines.forgotten[index] = true;
  if (lines.taken == index) lines.taken.reset();
  lines.left_over[index].clear();
  if (lines.receives[index] == MPI_REQUEST_NULL) return;
  MPI_Cancel(&lines.receives[index]);
  MPI_Request_free(&lines.receives[index]);
}

}  // namespace lockstep::comm
