#include "comm/session/rendezvous.hpp"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/session/backoff.hpp"
#include "comm/session/mpi_state.hpp"

namespace lockstep::comm {
namespace {

constexpr int kRendezvousTag = 1;

/// Another build of this program may have more to say of itself, or less.
void require_lengths(int code, bool received, std::span<const int> senders, std::span<const MPI_Status> statuses,
                     std::size_t bytes) {
  if (code == MPI_SUCCESS && !received) return;
  for (std::size_t i = 0; i < senders.size(); ++i) {
    int count = static_cast<int>(bytes), error_class = MPI_SUCCESS;
    if (code == MPI_ERR_IN_STATUS) MPI_Error_class(statuses[i].MPI_ERROR, &error_class);
    if (received && code == MPI_SUCCESS) MPI_Get_count(&statuses[i], MPI_BYTE, &count);
    if (error_class != MPI_ERR_TRUNCATE && count == static_cast<int>(bytes)) continue;
    throw PeerError(fmt::format(
        "rank {} introduces itself in another way: it runs another version of lockstep. The same program has "
        "to be on all hosts. Ending the job.",
        senders[i]));
  }
}

}  // namespace

void exchange_bytes(MpiSession::State& state, std::span<const std::byte> mine, std::span<std::byte> all,
                    double deadline_seconds) {
  const std::size_t bytes = mine.size();
  std::copy(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(bytes) * state.rank);
  if (state.size == 1) return;
  std::vector<MPI_Request> receives, sends;
  std::vector<int> senders;
  for (int rank = 0; rank < state.size; ++rank) {
    if (rank == state.rank) continue;
    senders.push_back(rank);
    check(MPI_Irecv(all.data() + bytes * static_cast<std::size_t>(rank), static_cast<int>(bytes), MPI_BYTE, rank,
                    kRendezvousTag, state.data, &receives.emplace_back()),
          "MPI_Irecv", state, rank);
  }
  for (const int rank : senders) {
    check(MPI_Isend(mine.data(), static_cast<int>(bytes), MPI_BYTE, rank, kRendezvousTag, state.data,
                    &sends.emplace_back()),
          "MPI_Isend", state, rank);
  }
  Patience patience(deadline_seconds);
  std::vector<MPI_Status> statuses(receives.size());
  int received = 0, sent = 0;
  using std::chrono::microseconds;
  for (Backoff backoff({.spin = {}, .yield = microseconds(1000), .sleep = microseconds(100)});;) {
    if (!received) {
      const int code = MPI_Testall(static_cast<int>(receives.size()), receives.data(), &received, statuses.data());
      require_lengths(code, received != 0, senders, statuses, bytes);
      check(code, "MPI_Testall", state);
    }
    check(MPI_Testall(static_cast<int>(sends.size()), sends.data(), &sent, MPI_STATUSES_IGNORE), "MPI_Testall", state);
    if (received && sent) return;
    backoff.pause();
    if (!patience.exhausted(false)) continue;

    std::vector<int> missing;
    for (std::size_t i = 0; i < receives.size(); ++i) {
      int done = 0;
      check(MPI_Test(&receives[i], &done, MPI_STATUS_IGNORE), "MPI_Test", state, senders[i]);
      if (!done) missing.push_back(state.first_rank + senders[i]);
    }
    state.suspects->mark(missing);
    throw PeerError(
        missing.empty()
            ? fmt::format("nobody has taken what this rank says of itself at the start for {} s: the network between "
                          "the hosts may be cut or blocked. Ending the job.",
                          seconds_text(deadline_seconds))
            : fmt::format("rank {} has not introduced itself at the start for {} s. It may be stopped, swapped out or "
                          "cut off, or the network between it and this host is blocked. Ending the job.",
                          fmt::join(missing, ", rank "), seconds_text(deadline_seconds)));
  }
}

}  // namespace lockstep::comm
