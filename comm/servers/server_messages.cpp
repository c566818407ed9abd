#include "comm/servers/server_messages.hpp"

#include <algorithm>
#include <climits>
#include <cstring>
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
                                           .forgotten = {}})) {
  const std::size_t bytes = sizeof(ServerNote) + options.most_values * sizeof(float);
  if (bytes > INT_MAX) {
    throw std::invalid_argument(fmt::format(
        "{} parameters in one message are more than MPI can count: give more --servers", options.most_values));
  }
  lines_->received.assign(options.peers.size(), std::vector<std::byte>(bytes));
  lines_->receives.assign(options.peers.size(), MPI_REQUEST_NULL);
  lines_->forgotten.assign(options.peers.size(), false);
  const std::lock_guard lock(*options.mpi);
  for (std::size_t peer = 0; peer < options.peers.size(); ++peer) lines_->post(peer);
}

ServerMessages::~ServerMessages() {
  const std::lock_guard lock(*lines_->options.mpi);
  call_back(lines_->receives);
  bool busy = !lines_->sent.empty();
  for (const MPI_Request& request : lines_->receives) busy = busy || request != MPI_REQUEST_NULL;
  if (busy) lines_->state.kept->add(lines_);
}

int ServerMessages::peers() const noexcept { return static_cast<int>(lines_->options.peers.size()); }

void ServerMessages::send(int peer, const ServerNote& note, std::span<const float> values) {
  Lines& lines = *lines_;
  if (lines.forgotten[static_cast<std::size_t>(peer)]) return;
  if (lines.spare.empty()) lines.spare.emplace_back();
  Lines::Sent& entry = lines.spare.front();
  entry.bytes.resize(sizeof note + values.size_bytes());
  entry.peer = lines.options.peers[static_cast<std::size_t>(peer)];
  std::memcpy(entry.bytes.data(), &note, sizeof note);
  if (!values.empty()) std::memcpy(entry.bytes.data() + sizeof note, values.data(), values.size_bytes());
  lines.bytes += entry.bytes.size();
  lines.sent.splice(lines.sent.end(), lines.spare, lines.spare.begin());
  const std::lock_guard lock(*lines.options.mpi);
  check(MPI_Isend(entry.bytes.data(), static_cast<int>(entry.bytes.size()), MPI_BYTE, entry.peer,
                  server_tag(lines.options.send), lines.state.data, &entry.request),
        "MPI_Isend", lines.state, entry.peer);
}

std::optional<ServerMessages::Received> ServerMessages::poll() {
  Lines& lines = *lines_;
  const std::lock_guard lock(*lines.options.mpi);
  if (lines.taken) lines.post(*std::exchange(lines.taken, std::nullopt));
  lines.test_sent();
  for (std::size_t i = 0; i < lines.receives.size(); ++i) {
    const std::size_t peer = (lines.next + i) % lines.receives.size();
    if (lines.receives[peer] == MPI_REQUEST_NULL) continue;
    int done = 0, count = 0;
    MPI_Status status;
    check(MPI_Test(&lines.receives[peer], &done, &status), "MPI_Test", lines.state, lines.options.peers[peer]);
    if (!done) continue;
    MPI_Get_count(&status, MPI_BYTE, &count);
    const auto bytes = static_cast<std::size_t>(count);
    if (bytes < sizeof(ServerNote)) throw PeerError("a message to or from a parameter server is cut off");
    lines.next = (peer + 1) % lines.receives.size();
    lines.taken = peer;
    lines.bytes += bytes;
    Received received{.peer = static_cast<int>(peer), .note = {}, .values = {}};
    const std::byte* const data = lines.received[peer].data();
    std::memcpy(static_cast<void*>(&received.note), data, sizeof received.note);
    received.values = {reinterpret_cast<const float*>(data + sizeof received.note),
                       (bytes - sizeof received.note) / sizeof(float)};
    return received;
  }
  return std::nullopt;
}

bool ServerMessages::all_sent() {
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
  if (lines.receives[index] == MPI_REQUEST_NULL) return;
  MPI_Cancel(&lines.receives[index]);
  MPI_Request_free(&lines.receives[index]);
}

}  // namespace lockstep::comm
