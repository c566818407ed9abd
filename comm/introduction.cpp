#include "comm/introduction.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "comm/mpi_state.hpp"

namespace lockstep::comm {
namespace {
constexpr int kIntroductionTag = 1;
}

void exchange_bytes(MpiSession::State& state, std::span<const std::byte> mine, std::span<std::byte> all,
                    double deadline_seconds) {
  const std::size_t bytes = mine.size();
  std::copy(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(bytes) * state.rank);
  std::vector<MPI_Request> receives, sends;
  std::vector<int> senders;
  for (int rank = 0; rank < state.size; ++rank) {
    if (rank == state.rank) continue;
    senders.push_back(rank);
    check(MPI_Irecv(all.data() + bytes * static_cast<std::size_t>(rank), static_cast<int>(bytes), MPI_BYTE, rank,
                    kIntroductionTag, state.data, &receives.emplace_back()),
          "MPI_Irecv", state, rank);
  }
  for (const int rank : senders) {
    check(MPI_Isend(mine.data(), static_cast<int>(bytes), MPI_BYTE, rank, kIntroductionTag, state.data,
                    &sends.emplace_back()),
          "MPI_Isend", state, rank);
  }
  Patience patience(deadline_seconds);
  for (int polls = 0;; ++polls) {
    int received = 0, sent = 0;
    check(MPI_Testall(static_cast<int>(receives.size()), receives.data(), &received, MPI_STATUSES_IGNORE),
          "MPI_Testall", state);
    check(MPI_Testall(static_cast<int>(sends.size()), sends.data(), &sent, MPI_STATUSES_IGNORE), "MPI_Testall", state);
    if (received && sent) return;
    if (polls < 1000) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    if (!patience.exhausted(false)) continue;

    std::vector<int> missing;
    for (std::size_t i = 0; i < receives.size(); ++i) {
      int done = 0;
      check(MPI_Test(&receives[i], &done, MPI_STATUS_IGNORE), "MPI_Test", state, senders[i]);
      if (!done) missing.push_back(senders[i]);
    }
    state.suspects.mark(missing);
    throw PeerError(
        missing.empty()
            ? fmt::format("rank {} (host {}) could not introduce itself to its peers within {} s: the network "
                          "between their hosts may be cut. Ending the job.",
                          state.rank, state.host, seconds_text(deadline_seconds))
            : fmt::format("rank {} has not introduced itself at the start for {} s. It may be stopped, swapped "
                          "out or cut off. Ending the job.",
                          fmt::join(missing, ", rank "), seconds_text(deadline_seconds)));
  }
}

}  // namespace lockstep::comm
