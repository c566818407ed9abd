#include "comm/session/rendezvous.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/session/backoff.hpp"
#include "comm/session/doubling.hpp"
#include "comm/session/mpi_state.hpp"

namespace lockstep::comm {
namespace {

constexpr int kRendezvousTag = 1, kPresentTag = 5;
/// Time for which a rank that has waited in vain listens for other waiting ranks.
constexpr std::chrono::milliseconds kGrace{1500};
using Clock = std::chrono::steady_clock;

/// One rank's part in an exchange.
class Rendezvous {
 public:
  Rendezvous(MpiSession::State& state, std::span<std::byte> all, double deadline_seconds)
      : state_(state),
        all_(all),
        bytes_(all.size() / static_cast<std::size_t>(state.size)),
        deadline_seconds_(deadline_seconds),
        patience_(deadline_seconds),
        known_(static_cast<std::size_t>(state.size)) {}

  void run() {
    known_[static_cast<std::size_t>(state_.rank)] = true;
    for (const DoublingRound& round : doubling_rounds(state_.size, state_.rank)) exchange(round);
  }

 private:
  std::span<std::byte> of(PositionRun run) const {
    if (run.count == 0) return {};
    return all_.subspan(bytes_ * static_cast<std::size_t>(run.first), bytes_ * static_cast<std::size_t>(run.count));
  }
  std::size_t bytes_of(const PositionRuns& runs) const {
    return bytes_ * static_cast<std::size_t>(runs[0].count + runs[1].count);
  }

  void exchange(const DoublingRound& round) {
    std::vector<std::byte> in(bytes_of(round.incoming)), out;
    out.reserve(bytes_of(round.outgoing));
    for (const PositionRun& run : round.outgoing) out.insert(out.end(), of(run).begin(), of(run).end());
    std::array<MPI_Request, 3> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    try {
      check(MPI_Irecv(in.data(), static_cast<int>(in.size()), MPI_BYTE, round.from, kRendezvousTag, state_.data,
                      &requests[0]),
            "MPI_Irecv", state_, round.from);
      for (std::size_t i = 0; i < round.receiving().size(); ++i) {
        check(MPI_Isend(out.data(), static_cast<int>(out.size()), MPI_BYTE, round.to[i], kRendezvousTag, state_.data,
                        &requests[i + 1]),
              "MPI_Isend", state_, round.to[i]);
      }
      wait(requests, round.from, in.size());
    } catch (...) {  // MPI may still access the memory
      state_.kept->add(
          std::make_shared<std::array<std::vector<std::byte>, 2>>(std::array{std::move(in), std::move(out)}));
      throw;
    }
    auto from = in.begin();
    for (const PositionRun& run : round.incoming) {
      std::copy_n(from, of(run).size(), of(run).begin());
      from += static_cast<std::ptrdiff_t>(of(run).size());
      for (int i = 0; i < run.count; ++i) known_[static_cast<std::size_t>(run.first + i)] = true;
    }
  }

  void wait(std::array<MPI_Request, 3>& requests, int from, std::size_t bytes) {
    using std::chrono::microseconds;
    Backoff backoff(
        {.spin = {}, .yield = microseconds(1000), .sleep = microseconds(100), .ceiling = microseconds(1000)});
    for (Clock::time_point next_check{};;) {
      int received = 0, sent = 0;
      MPI_Status status;
      const int code = requests[0] == MPI_REQUEST_NULL ? MPI_SUCCESS : MPI_Test(&requests[0], &received, &status);
      if (requests[0] != MPI_REQUEST_NULL || received) require_length(code, received != 0, status, from, bytes);
      check(code, "MPI_Test", state_, from);
      check(MPI_Testall(2, requests.data() + 1, &sent, MPI_STATUSES_IGNORE), "MPI_Testall", state_);
      if (requests[0] == MPI_REQUEST_NULL && sent) return;
      if (Clock::now() >= next_check) {
        next_check = Clock::now() + std::chrono::milliseconds(100);
        int somebody_gives_up = 0;
        check(MPI_Iprobe(MPI_ANY_SOURCE, kPresentTag, state_.data, &somebody_gives_up, MPI_STATUS_IGNORE), "MPI_Iprobe",
              state_);
        if (patience_.exhausted(false) || somebody_gives_up) give_up(from);
      }
      backoff.pause();
    }
  }

  /// Another version of this program may send more or fewer bytes.
  void require_length(int code, bool received, const MPI_Status& status, int from, std::size_t bytes) const {
    int error_class = MPI_SUCCESS, count = static_cast<int>(bytes);
    if (code != MPI_SUCCESS) MPI_Error_class(code, &error_class);
    if (code == MPI_SUCCESS && received) MPI_Get_count(&status, MPI_BYTE, &count);
    if (error_class != MPI_ERR_TRUNCATE && count == static_cast<int>(bytes)) return;
    throw PeerError(fmt::format(
        "rank {} introduces itself in another way: it runs another version of lockstep. The same program has "
        "to be on all hosts. Ending the job.",
        state_.first_rank + from));
  }

  /// Names the missing rank. Only few ranks wait for it directly, and others wait for those. Each rank that has waited
  /// long enough therefore tells all that it is present, and so does each waiting rank that receives such a message.
  /// The missing rank is the one that is silent and was not heard before; otherwise it is `from`, which does not pass
  /// on what it has received.
  [[noreturn]] void give_up(int from) {
    const auto size = static_cast<std::size_t>(state_.size);
    std::vector<MPI_Request> sends(size, MPI_REQUEST_NULL);
    std::vector<bool> present = known_;
    auto count = static_cast<std::size_t>(std::count(present.begin(), present.end(), true));
    for (int rank = 0; rank < state_.size; ++rank) {
      if (rank == state_.rank) continue;
      MPI_Request& send = sends[static_cast<std::size_t>(rank)];
      if (MPI_Isend(nullptr, 0, MPI_BYTE, rank, kPresentTag, state_.data, &send) != MPI_SUCCESS)
        send = MPI_REQUEST_NULL;
    }
    for (const auto end = Clock::now() + kGrace; Clock::now() < end && count < size;) {
      int there = 0;
      MPI_Status status;
      check(MPI_Iprobe(MPI_ANY_SOURCE, kPresentTag, state_.data, &there, &status), "MPI_Iprobe", state_);
      if (!there) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      check(MPI_Recv(nullptr, 0, MPI_BYTE, status.MPI_SOURCE, kPresentTag, state_.data, MPI_STATUS_IGNORE), "MPI_Recv",
            state_, status.MPI_SOURCE);
      const auto source = static_cast<std::size_t>(status.MPI_SOURCE);
      if (!present[source]) ++count;
      present[source] = true;
    }
    std::vector<int> missing;
    for (std::size_t rank = 0; rank < size; ++rank) {
      if (!present[rank]) missing.push_back(state_.first_rank + static_cast<int>(rank));
    }
    if (missing.empty()) missing.push_back(state_.first_rank + from);
    state_.suspects->mark(missing);
    throw PeerError(fmt::format(
        "rank {} has not introduced itself at the start for {} s. It may be stopped, swapped out or cut off, or the "
        "network between it and this host is blocked. Ending the job.",
        fmt::join(missing, ", rank "), seconds_text(deadline_seconds_)));
  }

  MpiSession::State& state_;
  std::span<std::byte> all_;
  std::size_t bytes_;
  double deadline_seconds_;
  Patience patience_;
  std::vector<bool> known_;  ///< ranks that have introduced themselves
};

}  // namespace

void exchange_bytes(MpiSession::State& state, std::span<const std::byte> mine, std::span<std::byte> all,
                    double deadline_seconds) {
  std::ranges::copy(mine, all.subspan(mine.size() * static_cast<std::size_t>(state.rank)).begin());
  if (state.size > 1) Rendezvous(state, all, deadline_seconds).run();
}

}  // namespace lockstep::comm
