#include "comm/survey/pair_messages.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <mutex>
#include <vector>

#include <fmt/format.h>

#include "comm/session/backoff.hpp"
#include "comm/session/deadline.hpp"
#include "comm/session/mpi_state.hpp"
#include "comm/session/peers.hpp"

namespace lockstep::comm {
namespace {

constexpr int kPairTag = 71;            // used by no collective
constexpr std::size_t kOnTheirWay = 4;  // messages of a load under way at once

}  // namespace

/// The line owns all memory of messages, and outlives its owner while a message may still arrive.
struct PairMessages::Line {
  MpiSession::State& state;
  int peer;
  double deadline;
  bool broken = false;
  std::vector<std::byte> small, load;

  /// Polls until `done` returns true: eagerly for the first milliseconds, so that latencies are the network's; then
  /// with pauses, so that a rank that waits for a late peer leaves its core to others.
  template <class Done>
  void wait(Done done) {
    using std::chrono::microseconds;
    Backoff backoff(
        {.spin = {}, .yield = microseconds(5000), .sleep = microseconds(100), .ceiling = microseconds(1000)});
    Patience patience(deadline);
    while (!done()) {
      backoff.pause();
      if (!patience.exhausted(false)) continue;
      broken = true;
      throw PeerError(fmt::format("rank {} (host {}) and rank {} do not reach each other: nothing has come for {} s",
                                  state.rank, state.host, peer, seconds_text(deadline)));
    }
  }

  void wait_for(MPI_Request& request) {
    wait([&] {
      int done = 0;
      const std::lock_guard lock(*state.mpi);
      check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test", state, peer);
      return done != 0;
    });
  }

  void send(const std::byte* from, std::size_t bytes, MPI_Request& request) {
    const std::lock_guard lock(*state.mpi);
    check(MPI_Isend(from, static_cast<int>(bytes), MPI_BYTE, peer, kPairTag, state.data, &request), "MPI_Isend", state,
          peer);
  }
  void receive(std::byte* to, std::size_t bytes, MPI_Request& request) {
    const std::lock_guard lock(*state.mpi);
    check(MPI_Irecv(to, static_cast<int>(bytes), MPI_BYTE, peer, kPairTag, state.data, &request), "MPI_Irecv", state,
          peer);
  }

  /// Calls start(slot, request) `times` times, with as many messages under way as there are slots.
  template <class Start>
  void many(std::int64_t times, Start start) {
    std::array<MPI_Request, kOnTheirWay> requests;
    requests.fill(MPI_REQUEST_NULL);
    for (std::int64_t i = 0; i < times; ++i) {
      const auto place = static_cast<std::size_t>(i) % kOnTheirWay;
      if (requests[place] != MPI_REQUEST_NULL) wait_for(requests[place]);
      start(place, requests[place]);
    }
    for (MPI_Request& request : requests) {
      if (request != MPI_REQUEST_NULL) wait_for(request);
    }
  }
};

PairMessages::PairMessages(MpiSession& session, int peer, double deadline_seconds)
    : line_(std::make_unique<Line>(session.state(), peer, deadline_seconds)) {}

PairMessages::~PairMessages() {
  if (line_->broken) static_cast<void>(line_.release());
}

void PairMessages::send_bytes(std::span<const std::byte> bytes) {
  line_->small.assign(bytes.begin(), bytes.end());
  MPI_Request request = MPI_REQUEST_NULL;
  line_->send(line_->small.data(), bytes.size(), request);
  line_->wait_for(request);
}

void PairMessages::receive_bytes(std::span<std::byte> bytes) {
  line_->small.resize(bytes.size());
  MPI_Request request = MPI_REQUEST_NULL;
  line_->receive(line_->small.data(), bytes.size(), request);
  line_->wait_for(request);
  std::copy(line_->small.begin(), line_->small.end(), bytes.begin());
}

void PairMessages::send_load(std::size_t bytes, std::int64_t times) {
  line_->load.resize(std::max(line_->load.size(), bytes), std::byte{1});
  line_->many(times, [&](std::size_t, MPI_Request& request) { line_->send(line_->load.data(), bytes, request); });
}

void PairMessages::receive_load(std::size_t bytes, std::int64_t times) {
  line_->load.resize(std::max(line_->load.size(), bytes * kOnTheirWay));
  line_->many(times, [&](std::size_t place, MPI_Request& request) {
    line_->receive(line_->load.data() + place * bytes, bytes, request);
  });
}

}  // namespace lockstep::comm
