#include "comm/host/message_exchange.hpp"

#include <algorithm>
#include <mutex>

#include "comm/host/ring_sum.hpp"
#include "comm/session/mpi_state.hpp"

namespace lockstep::comm {
namespace {

/// Calls visit(offset, length) for each piece; an empty message has one.
template <class Visit>
void for_each_piece(std::size_t bytes, Visit visit) {
  std::size_t offset = 0;
  do {
    const std::size_t length = std::min(kSegmentBytes, bytes - offset);
    visit(offset, length);
    offset += length;
  } while (offset < bytes);
}

}  // namespace

void MessageExchange::start(const Round& round) {
  MPI_Comm const data = detector_.state().data;
  const std::lock_guard lock(*detector_.state().mpi);
  lengths_.clear();
  receives_.clear();
  sends_.clear();
  received_ = sent_ = 0;
  from_ = round.from;
  if (from_ >= 0) detector_.await(from_);
  if (round.from >= 0) {
    for_each_piece(round.in.size(), [&](std::size_t offset, std::size_t length) {
      check(MPI_Irecv(round.in.data() + offset, static_cast<int>(length), MPI_BYTE, round.from, tag_, data,
                      &receives_.emplace_back(MPI_REQUEST_NULL)),
            "MPI_Irecv", detector_.state(), round.from);
      lengths_.push_back(length);
    });
  }
  for_each_piece(round.out.size(), [&](std::size_t offset, std::size_t length) {
    for (const int to : round.to) {
      check(MPI_Isend(round.out.data() + offset, static_cast<int>(length), MPI_BYTE, to, tag_, data,
                      &sends_.emplace_back(MPI_REQUEST_NULL)),
            "MPI_Isend", detector_.state(), to);
    }
  });
}

Progress MessageExchange::advance(Collective operation) {
  const std::lock_guard lock(*detector_.state().mpi);
  const bool progress = take_received(operation);
  const bool more = take_sent();
  if (received_ == receives_.size() && sent_ == sends_.size()) return Progress::done;
  return progress || more ? Progress::some : Progress::none;
}

bool MessageExchange::take_received(Collective operation) {
  const std::size_t before = received_;
  for (; received_ < receives_.size(); ++received_) {
    int complete = 0, bytes = 0;
    MPI_Status status;
    const int code = MPI_Test(&receives_[received_], &complete, &status);
    if (is_truncation(code)) detector_.diverged(operation, from_, -1, lengths_[received_]);
    check(code, "MPI_Test", detector_.state(), from_);
    if (!complete) break;
    check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count", detector_.state(), from_);
    if (static_cast<std::size_t>(bytes) != lengths_[received_]) {
      detector_.diverged(operation, from_, bytes, lengths_[received_]);
    }
  }
  return received_ > before;
}

bool MessageExchange::take_sent() {
  const std::size_t before = sent_;
  for (; sent_ < sends_.size(); ++sent_) {
    int complete = 0;
    check(MPI_Test(&sends_[sent_], &complete, MPI_STATUS_IGNORE), "MPI_Test", detector_.state());
    if (!complete) break;
  }
  return sent_ > before;
}

}  // namespace lockstep::comm
