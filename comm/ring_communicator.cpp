#include "comm/ring_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "comm/reduction_memory.hpp"
#include "comm/ring_journey.hpp"
#include "comm/summation.hpp"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kSmallBytes = 512;
constexpr int kSmallTag = 3;
/// How long a rank whose patience is over listens for the reports of the others.
constexpr std::chrono::milliseconds kGrace{1500};
constexpr std::chrono::milliseconds kLookInterval{100};

/// One poll without progress, the `idle`-th in a row: at first at full speed (0.3 ms), then lending the core to others,
/// then asleep. Where nobody waits for the result it sleeps at once.
void rest(int idle, bool oversubscribed, bool urgent) {
  constexpr int kFullSpeed = 2000, kYield = 500;
  if (!urgent) return std::this_thread::sleep_for(std::chrono::microseconds(50));
  const int yields_from = oversubscribed ? 0 : kFullSpeed;
  if (idle < yields_from) return;
  if (idle < yields_from + kYield) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace

RingCommunicator::RingCommunicator(MpiSession::State& state, PeerTable peers, double deadline_seconds, std::string note)
    : Communicator(state.rank, state.size),
      state_(state),
      peers_(std::move(peers)),
      status_(state, deadline_seconds),
      deadline_seconds_(deadline_seconds),
      oversubscribed_(peers_.oversubscribed()),
      staging_(kAhead * kSegmentBytes),
      small_terms_(static_cast<std::size_t>(state.size) * kSmallBytes) {
  set_transport_note(std::move(note));
}

RingCommunicator::~RingCommunicator() {
  if (std::uncaught_exceptions() == 0) return;
  try {
    status_.send(Report{.kind = Report::Kind::leaving});
  } catch (const std::exception&) {  // then the peers will find out by themselves
  }
}

std::unique_ptr<std::pmr::memory_resource> RingCommunicator::do_reduction_memory(std::size_t bytes) {
  return plain_reduction_memory(bytes);
}

// Sums ----------------------------------------------------------------------------------------------------------------

void RingCommunicator::do_all_reduce_sum(std::span<float> data, const Wire&) { all_reduce(data); }
void RingCommunicator::do_all_reduce_sum(std::span<double> data) { all_reduce(data); }

template <typename T>
void RingCommunicator::all_reduce(std::span<T> data) {
  if (data.size_bytes() <= kSmallBytes) return all_reduce_small(data);
  travel(data, 0, 2 * (size() - 1), Collective::all_reduce);
}

template <typename T>
void RingCommunicator::all_reduce_small(std::span<T> data) {
  ++sequence_;
  // After the round of distance d, the first 2d places hold the terms of ranks rank(), rank() + 1, …
  const std::size_t bytes = data.size_bytes();
  if (bytes > 0) std::memcpy(small_terms_.data(), data.data(), bytes);
  for (int distance = 1; distance < size(); distance *= 2) {
    const std::size_t block = bytes * static_cast<std::size_t>(std::min(distance, size() - distance));
    const int to = (rank() - distance + size()) % size(), from = (rank() + distance) % size();
    std::array<MPI_Request, 2> requests{};
    check(MPI_Isend(small_terms_.data(), static_cast<int>(block), MPI_BYTE, to, kSmallTag, state_.data, &requests[0]),
          "MPI_Isend", state_, to);
    check(MPI_Irecv(small_terms_.data() + bytes * static_cast<std::size_t>(distance), static_cast<int>(block), MPI_BYTE,
                    from, kSmallTag, state_.data, &requests[1]),
          "MPI_Irecv", state_, from);
    wait_for(requests, Collective::all_reduce, static_cast<std::int64_t>(block));
  }
  for (int term = 0; term < size() && bytes > 0; ++term) {
    const int place = (term - rank() + size()) % size();
    const auto* const values =
        reinterpret_cast<const T*>(small_terms_.data() + bytes * static_cast<std::size_t>(place));
    if (term == 0) {
      std::memcpy(data.data(), values, bytes);
    } else {
      add_to(data.data(), values, data.size());
    }
  }
}

void RingCommunicator::do_reduce_scatter_sum(std::span<float> data, const Wire&) {
  travel(data, 0, size() - 1, Collective::reduce_scatter);
}

void RingCommunicator::do_all_gather(std::span<float> data) {
  travel(data, size() - 1, 2 * (size() - 1), Collective::all_gather);
}

template <typename T>
void RingCommunicator::travel(std::span<T> data, int first, int last, Collective operation) {
  ++sequence_;
  RingJourney<T> journey(*this, state_, data, staging_, first, last);
  try {
    wait_until_done(operation, [&] {
      const bool progress = journey.advance();
      return journey.done() ? Progress::done : progress ? Progress::some : Progress::none;
    });
  } catch (const LengthError& error) {
    diverged(operation, (rank() + size() - 1) % size(), error.got, error.expected);
  }
}

// Copies --------------------------------------------------------------------------------------------------------------

void RingCommunicator::do_broadcast(std::span<std::byte> data, int root) {
  ++sequence_;
  constexpr std::size_t kPiece = std::size_t{1} << 30;  // MPI counts in int
  std::size_t offset = 0;
  do {
    const std::span<std::byte> piece = data.subspan(offset, std::min(kPiece, data.size() - offset));
    std::array<MPI_Request, 1> request{};
    check(MPI_Ibcast(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, root, state_.data, request.data()),
          "MPI_Ibcast", state_);
    wait_for(request, Collective::broadcast);
    offset += piece.size();
  } while (offset < data.size());
}

void RingCommunicator::do_barrier() {
  ++sequence_;
  std::array<MPI_Request, 1> request{};
  check(MPI_Ibarrier(state_.data, request.data()), "MPI_Ibarrier", state_);
  wait_for(request, Collective::barrier);
}

// Waits ---------------------------------------------------------------------------------------------------------------

void RingCommunicator::wait_for(std::span<MPI_Request> requests, Collective operation, std::int64_t expected_bytes) {
  wait_until_done(operation, [&] {
    for (MPI_Request& request : requests) {
      if (request == MPI_REQUEST_NULL) continue;
      int complete = 0;
      MPI_Status status;
      const int code = MPI_Test(&request, &complete, &status);
      const bool receives = expected_bytes >= 0 && &request == &requests.back();
      if (receives && is_truncation(code)) {
        diverged(operation, status.MPI_SOURCE, -1, static_cast<std::size_t>(expected_bytes));
      }
      check(code, "MPI_Test", state_);
      if (!complete) return Progress::none;
      if (!receives) continue;
      int bytes = 0;
      check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count", state_);
      if (bytes != expected_bytes) {
        diverged(operation, status.MPI_SOURCE, bytes, static_cast<std::size_t>(expected_bytes));
      }
    }
    return Progress::done;
  });
}

template <typename Advance>
void RingCommunicator::wait_until_done(Collective operation, Advance advance) {
  constexpr int kPollsPerClock = 64;
  std::optional<Patience> patience;  // from the first idle polls on: a transfer that flows never asks for the time
  Clock::time_point next_look;
  for (int idle = 0;;) {
    const Progress progress = advance();
    if (progress == Progress::done) return;
    if (progress == Progress::some) {
      idle = 0;
      patience.reset();
      continue;
    }
    rest(++idle, oversubscribed_, urgent());
    if (idle % kPollsPerClock != 0) continue;
    idle = std::min(idle, 1 << 20);  // a multiple of kPollsPerClock: asleep anyway
    const Clock::time_point now = Clock::now();
    if (!patience) {
      patience.emplace(deadline_seconds_);
      next_look = now + kLookInterval;
    } else if (now >= next_look) {
      look_around(operation, *patience);
      next_look = now + kLookInterval;
    }
  }
}

void RingCommunicator::look_for_the_dead() {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank() || peers_.process_state(peer) != ProcessState::gone) continue;
    if (status_.report(peer)) continue;  // it left with a message: the launcher ends this rank, too
    state_.suspects.mark(std::span(&peer, 1));
    throw PeerError(
        fmt::format("{} has died; its peers are in {}. Its host's system log may say why (out of memory?). "
                    "Ending the job.",
                    peers_.describe(peer), own_activity()));
  }
}

void RingCommunicator::look_around(Collective operation, Patience& patience) {
  status_.poll();
  look_for_the_dead();
  const bool leaving = status_.anybody_leaves();
  const bool out_of_patience = patience.exhausted(status_.anybody_is_busy());
  if (out_of_patience || (!leaving && status_.anybody_reports())) inquest(operation, patience.waited());
}

void RingCommunicator::report_waiting(Collective operation, double waited) {
  Report report{.kind = Report::Kind::waiting,
                .operation = static_cast<std::int32_t>(operation),
                .sequence = sequence_,
                .waited = waited,
                .step = step_};
  std::strncpy(report.activity, activity_, sizeof(report.activity) - 1);
  status_.send(report);
}

std::string RingCommunicator::own_activity() const {
  return step_ < 0 ? activity_ : fmt::format("step {}: {}", step_, activity_);
}

void RingCommunicator::inquest(Collective operation, double waited) {
  report_waiting(operation, waited);
  const auto everybody_reported = [&] {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank() && !status_.report(peer)) return false;
    }
    return true;
  };
  for (const auto end = Clock::now() + kGrace; Clock::now() < end && !everybody_reported();) {
    status_.poll();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  throw PeerError(verdict(operation, waited));
}

std::string RingCommunicator::verdict(Collective operation, double waited) {
  double longest = waited;
  std::vector<int> silent;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    if (const auto& report = status_.report(peer)) {
      longest = std::max(longest, report->waited);
    } else {
      silent.push_back(peer);
    }
  }
  state_.suspects.mark(silent);

  constexpr std::size_t kNamed = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(kNamed, silent.size()); ++i) {
    text += fmt::format("{} has not arrived at {} for {} s; its peers wait in {}. {} ", peers_.describe(silent[i]),
                        with_article(operation), seconds_text(longest), own_activity(),
                        explanation(peers_.process_state(silent[i])));
  }
  if (silent.size() > kNamed) text += fmt::format("The same goes for {} more ranks. ", silent.size() - kNamed);
  if (!silent.empty()) return text + "Ending the job.";

  // Everybody answers. Somebody came late, or the ranks are in different collectives, or data does not get through.
  for (int peer = 0; peer < size(); ++peer) {
    const auto& report = status_.report(peer);
    const double theirs = peer == rank() ? waited : report ? report->waited : 0;
    if (theirs < longest / 2) {
      text += fmt::format("{} arrived at {} only after its peers had waited for {} s; ", peers_.describe(peer),
                          with_article(operation), seconds_text(longest));
    }
  }
  if (!text.empty()) return text + "if it needs that long, raise the deadline. Ending the job.";
  for (int peer = 0; peer < size(); ++peer) {
    const auto& report = status_.report(peer);
    if (!report || (report->sequence == sequence_ && report->operation == static_cast<std::int32_t>(operation)))
      continue;
    return fmt::format(
        "the ranks have diverged: {} is in {} (its collective number {}), {} in {} (number {}). "
        "Ending the job.",
        peers_.describe(peer), with_article(static_cast<Collective>(report->operation)), report->sequence,
        peers_.describe(rank()), with_article(operation), sequence_);
  }
  return fmt::format(
      "{} has got no data from {} in {} for {} s although every rank answers: the network between two hosts "
      "loses large messages. Ending the job.",
      peers_.describe(rank()), peers_.describe((rank() + size() - 1) % size()), with_article(operation),
      seconds_text(longest));
}

void RingCommunicator::diverged(Collective operation, int peer, std::int64_t got, std::size_t expected) {
  throw PeerError(
      fmt::format("the ranks have diverged: {} sent {} to {}, which is in {} and expects {} bytes; {}. "
                  "Ending the job.",
                  peers_.describe(peer), got < 0 ? "a longer message" : fmt::format("{} bytes", got),
                  peers_.describe(rank()), with_article(operation), expected, own_activity()));
}

// What this rank is doing ---------------------------------------------------------------------------------------------

void RingCommunicator::do_note_activity(const char* what, std::int64_t step) noexcept {
  activity_ = what;
  step_ = step;
}

void RingCommunicator::do_begin_long_operation(const char* what) {
  if (what) activity_ = what;
  status_.start_signs_of_life();
}

void RingCommunicator::do_end_long_operation() noexcept { status_.stop_signs_of_life(); }

double RingCommunicator::do_set_deadline(double seconds) { return std::exchange(deadline_seconds_, seconds); }

bool RingCommunicator::do_look_at_peers() {
  status_.poll();
  look_for_the_dead();
  return status_.anybody_is_busy();
}

}  // namespace lockstep::comm
