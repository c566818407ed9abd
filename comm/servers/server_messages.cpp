#include "comm/servers/server_messages.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <cstring>
#include <deque>
#include <list>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "comm/servers/changed_blocks.hpp"
#include "comm/session/deadline.hpp"
#include "comm/session/mpi_state.hpp"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kFirstServerTag =
    81;  // no collective uses these tags; a header and its values share one, so they keep their order

int server_tag(ServerMessages::Lane lane) { return kFirstServerTag + static_cast<int>(lane); }

HostWindow::End receiver_of(ServerMessages::Lane lane) {
  using Lane = ServerMessages::Lane;
  return lane == Lane::to_servers || lane == Lane::between_servers ? HostWindow::End::server : HostWindow::End::worker;
}

/// First part of a message between hosts.
struct MessageHead {
  ServerHeader header;
  std::uint64_t values = 0;
};

static_assert(static_cast<int>(ServerMessages::Lane::from_judge) + 1 == HostWindow::kLanes);
static_assert(sizeof(ServerHeader) + sizeof(std::uint32_t) <= HostWindow::kMessage);

}  // namespace

/// All buffers and requests of the messages; kept until MPI ends if MPI may still use them.
struct ServerMessages::Lines {
  MpiSession::State& state;
  Options options;
  struct Peer {
    MessageHead head;
    std::vector<float> values;
    MPI_Request head_comes = MPI_REQUEST_NULL, values_come = MPI_REQUEST_NULL;
    std::deque<std::vector<std::byte>> left_over;  ///< messages for which its mailbox had no room
    bool is_whole = false;                         ///< a whole message from this peer on another host has arrived
    bool forgotten = false;
  };
  std::vector<Peer> peers;
  std::optional<std::size_t> taken = {};  ///< peer whose message the caller reads; the next poll() frees its buffer
  std::size_t next = 0;                   ///< peer that poll() looks at first
  struct Sent {
    MessageHead head;
    std::vector<float> values;
    std::array<MPI_Request, 2> requests;
    std::size_t peer = 0;
  };
  std::list<Sent> sent = {}, spare = {};
  std::vector<float> packed = {};
  std::uint64_t bytes = 0;
  bool uses_mpi = false;               ///< true if some peer is on another host
  Clock::time_point returned_at = {};  ///< time at which the taken message was returned

  HostWindow& window() const { return *options.window; }
  int rank(std::size_t peer) const { return options.peers[peer]; }
  bool near(std::size_t peer) const { return window().reaches(rank(peer)); }
  int lane_to() const { return static_cast<int>(options.send); }
  int lane_from() const { return static_cast<int>(options.receive); }

  void leave_what_is_left() {
    for (std::size_t peer = 0; peer < peers.size(); ++peer) {
      auto& messages = peers[peer].left_over;
      if (messages.empty()) continue;
      while (!messages.empty() && window().leave(rank(peer), lane_to(), messages.front(), {})) messages.pop_front();
      window().ring(rank(peer), receiver_of(options.send));
    }
  }

  // The functions below call MPI; the caller holds its mutex.
  void post(std::size_t peer) {
    peers[peer].is_whole = false;
    check(MPI_Irecv(&peers[peer].head, sizeof(MessageHead), MPI_BYTE, rank(peer), server_tag(options.receive),
                    state.data, &peers[peer].head_comes),
          "MPI_Irecv", state, rank(peer));
  }
  bool has_come(MPI_Request& request, std::size_t peer) {
    int done = 0;
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test", state, rank(peer));
    return done != 0;
  }
  /// Returns true if a whole message of a peer on another host has arrived.
  bool look_at(std::size_t peer) {
    Peer& from = peers[peer];
    if (from.is_whole || from.forgotten) return from.is_whole;
    if (from.values_come == MPI_REQUEST_NULL) {
      if (!has_come(from.head_comes, peer)) return false;
      from.values.resize(from.head.values);
      if (from.values.empty()) return from.is_whole = true;
      check(MPI_Irecv(from.values.data(), static_cast<int>(from.values.size()), MPI_FLOAT, rank(peer),
                      server_tag(options.receive), state.data, &from.values_come),
            "MPI_Irecv", state, rank(peer));
    }
    return from.is_whole = has_come(from.values_come, peer);
  }
  /// Frees the buffers of messages that have been sent. Those to forgotten peers stay, because MPI may still read them.
  void test_sent() {
    for (auto entry = sent.begin(); entry != sent.end();) {
      const auto here = entry++;
      if (peers[here->peer].forgotten) continue;
      int done = 0;
      check(MPI_Testall(2, here->requests.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall", state, rank(here->peer));
      if (done) spare.splice(spare.end(), sent, here);
    }
  }
  /// Lets MPI advance its transfers. Returns true if a whole message of some peer has arrived.
  bool progress() {
    const std::lock_guard lock(*state.mpi);
    test_sent();
    bool any = false;
    for (std::size_t peer = 0; peer < peers.size(); ++peer) any = (!near(peer) && look_at(peer)) || any;
    return any;
  }
  bool is_sending() const {
    return std::ranges::any_of(sent, [this](const Sent& message) { return !peers[message.peer].forgotten; });
  }
  bool values_travel() const {
    return is_sending() ||
           std::ranges::any_of(peers, [](const Peer& peer) { return peer.values_come != MPI_REQUEST_NULL; });
  }

  Received hand_out(std::size_t peer, const ServerHeader& header, std::span<const float> values) {
    next = (peer + 1) % peers.size();
    taken = peer;
    bytes += sizeof header + values.size_bytes();
    if (uses_mpi) returned_at = Clock::now();
    return {.peer = static_cast<int>(peer), .header = header, .values = values};
  }
  Received hand_out(std::size_t peer) { return hand_out(peer, peers[peer].head.header, peers[peer].values); }
  Received hand_out(std::size_t peer, std::span<const std::byte> data) {
    ServerHeader header;
    std::memcpy(&header, data.data(), sizeof header);
    data = data.subspan(sizeof header);
    return hand_out(peer, header, {reinterpret_cast<const float*>(data.data()), data.size() / sizeof(float)});
  }
};

ServerMessages::ServerMessages(MpiSession& session, const Options& options)
    : lines_(std::make_shared<Lines>(Lines{
          .state = session.state(), .options = options, .peers = std::vector<Lines::Peer>(options.peers.size())})) {
  const std::lock_guard lock(*lines_->state.mpi);
  for (std::size_t peer = 0; peer < options.peers.size(); ++peer) {
    if (lines_->near(peer)) continue;
    lines_->post(peer);
    lines_->uses_mpi = true;
  }
}

ServerMessages::~ServerMessages() {
  const std::lock_guard lock(*lines_->state.mpi);
  bool busy = !lines_->sent.empty();
  for (Lines::Peer& peer : lines_->peers) {
    call_back({&peer.head_comes, 1});
    call_back({&peer.values_come, 1});
    busy = busy || peer.forgotten || peer.head_comes != MPI_REQUEST_NULL || peer.values_come != MPI_REQUEST_NULL;
  }
  if (busy) lines_->state.kept->add(lines_);
}

void ServerMessages::Received::copy_to(std::span<float> into) const {
  if (header.has_blocks && unpack_blocks(values, into)) return;
  if (header.has_blocks || values.size() != into.size()) {
    throw PeerError(fmt::format("a message has {} numbers for {}; this is a bug in lockstep, please report it",
                                values.size(), into.size()));
  }
  std::ranges::copy(values, into.begin());
}

bool ServerMessages::all_near() const noexcept { return !lines_->uses_mpi; }

int ServerMessages::peers() const noexcept { return static_cast<int>(lines_->peers.size()); }

void ServerMessages::send(int peer, const ServerHeader& header, std::span<const float> values) {
  Lines& lines = *lines_;
  const auto index = static_cast<std::size_t>(peer);
  Lines::Peer& to = lines.peers[index];
  if (to.forgotten) return;
  lines.bytes += sizeof header + values.size_bytes();
  if (lines.near(index)) {
    const std::span<const std::byte> head = std::as_bytes(std::span(&header, 1)), tail = std::as_bytes(values);
    if (!to.left_over.empty() || !lines.window().leave(lines.rank(index), lines.lane_to(), head, tail)) {
      to.left_over.emplace_back(head.begin(), head.end());
      to.left_over.back().insert(to.left_over.back().end(), tail.begin(), tail.end());
    }
    return lines.window().ring(lines.rank(index), receiver_of(lines.options.send));
  }
  if (values.size() > INT_MAX) {
    throw std::invalid_argument(
        fmt::format("{} parameters in one message are more than MPI can count: give more --servers", values.size()));
  }
  if (lines.spare.empty()) lines.spare.emplace_back();
  Lines::Sent& message = lines.spare.front();
  message.head = {.header = header, .values = values.size()};
  message.values.assign(values.begin(), values.end());
  message.requests.fill(MPI_REQUEST_NULL);
  message.peer = index;
  lines.sent.splice(lines.sent.end(), lines.spare, lines.spare.begin());
  const int rank = lines.rank(index), tag = server_tag(lines.options.send);
  const std::lock_guard lock(*lines.state.mpi);
  check(MPI_Isend(&message.head, sizeof(MessageHead), MPI_BYTE, rank, tag, lines.state.data, &message.requests[0]),
        "MPI_Isend", lines.state, rank);
  if (values.empty()) return;
  check(MPI_Isend(message.values.data(), static_cast<int>(values.size()), MPI_FLOAT, rank, tag, lines.state.data,
                  &message.requests[1]),
        "MPI_Isend", lines.state, rank);
}

void ServerMessages::send_blocks(int peer, ServerHeader header, std::span<const float> values,
                                 std::span<const std::uint32_t> blocks) {
  header.has_blocks = pack_blocks(values, blocks, lines_->packed);
  send(peer, header, header.has_blocks ? lines_->packed : values);
}

std::optional<ServerMessages::Received> ServerMessages::poll() {
  Lines& lines = *lines_;
  Clock::duration owed{0};  // time for MPI to advance its transfers
  if (lines.taken) {
    const std::size_t peer = *std::exchange(lines.taken, std::nullopt);
    if (lines.uses_mpi) owed = Clock::now() - lines.returned_at;
    if (lines.near(peer)) {
      lines.window().take(lines.rank(peer), lines.lane_from());
    } else {
      const std::lock_guard lock(*lines.state.mpi);
      lines.post(peer);
    }
  }
  lines.leave_what_is_left();
  if (lines.uses_mpi) {
    const auto until = Clock::now() + owed;
    while (!lines.progress() && lines.values_travel() && Clock::now() < until) continue;
  }
  for (std::size_t i = 0; i < lines.peers.size(); ++i) {
    const std::size_t peer = (lines.next + i) % lines.peers.size();
    if (lines.peers[peer].forgotten) continue;
    if (!lines.near(peer)) {
      if (lines.peers[peer].is_whole) return lines.hand_out(peer);
    } else if (const auto message = lines.window().message_of(lines.rank(peer), lines.lane_from()); !message.empty()) {
      return lines.hand_out(peer, message);
    }
  }
  return std::nullopt;
}

bool ServerMessages::all_sent() {
  Lines& lines = *lines_;
  lines.leave_what_is_left();
  if (std::ranges::any_of(lines.peers, [](const Lines::Peer& peer) { return !peer.left_over.empty(); })) return false;
  if (!lines.uses_mpi) return true;
  const std::lock_guard lock(*lines.state.mpi);
  lines.test_sent();
  return !lines.is_sending();
}

std::uint64_t ServerMessages::bytes() const noexcept { return lines_->bytes; }

void ServerMessages::forget(int peer) {
  Lines& lines = *lines_;
  const auto index = static_cast<std::size_t>(peer);
  Lines::Peer& dead = lines.peers[index];
  if (lines.taken == index) lines.taken.reset();
  dead.forgotten = true;
  dead.left_over.clear();
  const std::lock_guard lock(*lines.state.mpi);
  for (MPI_Request* const request : {&dead.head_comes, &dead.values_come}) {
    if (*request == MPI_REQUEST_NULL) continue;
    MPI_Cancel(request);
    MPI_Request_free(request);
  }
}

// The wait -----------------------------------------------------------------------------------------------------------

namespace {

/// Time between calls of watch_peers, and the longest sleep between polls.
constexpr std::chrono::milliseconds kBetweenLooks{100}, kLongestSleep{20};
constexpr std::chrono::microseconds kMoment{50};  ///< pause between polls if messages come through MPI

Backoff::Pace pace_of_messages(bool near, bool lends) {
  using std::chrono::microseconds;
  return {.spin = microseconds(near && !lends ? 50 : 0), .yield = microseconds(lends ? 0 : 2000), .sleep = {}};
}

}  // namespace

MessageWait::MessageWait(HostWindow& window, Options options)
    : window_(window),
      options_(std::move(options)),
      near_(std::ranges::all_of(options_.messages, &ServerMessages::all_near)),
      backoff_(pace_of_messages(near_, options_.lends || window.oversubscribed())) {}

bool MessageWait::until(const std::function<Poll()>& poll) {
  backoff_.reset();
  Patience patience(options_.limit_seconds());
  bool heard = false;
  for (auto next_check = Clock::now() + kBetweenLooks;;) {
    // A ring after this line ends the pause.
    const std::uint32_t seen = window_.own_bell(options_.end).value();
    const Poll result = poll();
    if (result == Poll::over) return true;
    if (result == Poll::something) {
      heard = true;
      backoff_.reset();
    } else {
      pause(seen);
    }
    if (Clock::now() < next_check) continue;
    next_check = Clock::now() + kBetweenLooks;
    const bool busy = options_.watch_peers && options_.watch_peers();
    if (std::exchange(heard, false)) patience = Patience(options_.limit_seconds());
    if (!patience.exhausted(busy)) continue;
    waited_ = patience.waited();
    return false;
  }
}

bool MessageWait::all_sent() { return std::ranges::all_of(options_.messages, &ServerMessages::all_sent); }

void MessageWait::pause(std::uint32_t seen) {
  if (backoff_.stays_awake()) return;
  // Messages that wait for room in a mailbox need further polls: sleep only when all are sent.
  if (near_ && all_sent()) return window_.own_bell(options_.end).sleep(seen, kLongestSleep);
  std::this_thread::sleep_for(kMoment);
}

}  // namespace lockstep::comm
