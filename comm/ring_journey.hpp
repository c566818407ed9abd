/// \file
/// One trip of the data around the ring: which segment goes and comes when. Private to ring_communicator.cpp, which has
/// the essay's other half: how to wait.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/communicator.hpp"
#include "comm/mpi_state.hpp"
#include "comm/summation.hpp"

namespace lockstep::comm {

/// Bytes of a segment; see ring_communicator.hpp.
inline constexpr std::size_t kSegmentBytes = 61440;
/// Segments posted ahead in each direction: 960 KiB in flight fill a 10 Gbit/s link of 0.7 ms round trip.
inline constexpr std::size_t kAhead = 16;
inline constexpr int kRingTag = 2;

/// The neighbour sent a message of another length (-1: a longer one) than expected: it is in another collective.
struct LengthError {
  std::int64_t got = 0;
  std::size_t expected = 0;
};

inline bool is_truncation(int code) {
  int error_class = MPI_SUCCESS;
  return code != MPI_SUCCESS && MPI_Error_class(code, &error_class) == MPI_SUCCESS && error_class == MPI_ERR_TRUNCATE;
}

/// Position in the stream of segments: step of the ring, segment of that step's slice.
struct Cursor {
  int step = 0;
  std::size_t segment = 0;
  auto operator<=>(const Cursor&) const = default;
};

template <typename T>
class RingJourney {
 public:
  /// Steps [first, last) over `data`; `staging` holds kAhead segments.
  RingJourney(const Communicator& communicator, MpiSession::State& state, std::span<T> data,
              std::span<std::byte> staging, int first, int last)
      : communicator_(communicator),
        state_(state),
        data_(data),
        staging_(staging),
        size_(communicator.size()),
        rank_(communicator.rank()),
        first_(first),
        last_(last) {
    posted_ = received_ = settled({first, 0}, Direction::in);
    started_ = sent_ = settled({first, 0}, Direction::out);
    receives_.fill(MPI_REQUEST_NULL);
    sends_.fill(MPI_REQUEST_NULL);
  }

  bool done() const { return received_.step == last_ && sent_.step == last_; }

  /// Does what can be done without waiting; true when anything could.
  bool advance() {
    bool progress = false;
    while (may_post()) progress = post();
    while (may_start()) progress = start();
    progress = take_received() || progress;
    progress = take_sent() || progress;
    return progress;
  }

 private:
  static constexpr std::size_t kSegment = kSegmentBytes / sizeof(T);
  enum class Direction { in, out };

  bool reduces(int step) const { return step < size_ - 1; }

  Slice slice(int step, Direction direction) const {
    const int behind = step + (direction == Direction::out ? 1 : 2);
    return communicator_.own_slice(data_.size(), ((rank_ - behind) % size_ + size_) % size_);
  }

  /// The next segment there is, from `at` on: empty slices have none.
  Cursor settled(Cursor at, Direction direction) const {
    while (at.step < last_ && at.segment * kSegment >= slice(at.step, direction).count) at = {at.step + 1, 0};
    return at;
  }

  Cursor next(Cursor at, Direction direction) const { return settled({at.step, at.segment + 1}, direction); }

  std::span<T> segment(Cursor at, Direction direction) const {
    const Slice whole = slice(at.step, direction);
    const std::size_t offset = at.segment * kSegment;
    return data_.subspan(whole.offset + offset, std::min(kSegment, whole.count - offset));
  }

  /// A received segment lands in place in the gathering half: only after its partial sum, which this rank sent
  /// size - 1 steps before, has left.
  bool may_post() const {
    if (posted_.step == last_ || posts_ - receipts_ == kAhead) return false;
    return reduces(posted_.step) || Cursor{posted_.step + 1 - size_, posted_.segment} < sent_;
  }

  bool post() {
    const std::span<T> target = segment(posted_, Direction::in);
    void* const buffer = reduces(posted_.step) ? static_cast<void*>(staged(posts_)) : target.data();
    check(MPI_Irecv(buffer, static_cast<int>(target.size_bytes()), MPI_BYTE, previous(), kRingTag, state_.data,
                    &receives_[posts_ % kAhead]),
          "MPI_Irecv", state_, previous());
    ++posts_;
    posted_ = next(posted_, Direction::in);
    return true;
  }

  /// What the first step sends is this rank's own; after that a segment goes on when it has come in the step before.
  bool may_start() const {
    if (started_.step == last_ || starts_ - departures_ == kAhead) return false;
    return started_.step == first_ || Cursor{started_.step - 1, started_.segment} < received_;
  }

  bool start() {
    const std::span<T> source = segment(started_, Direction::out);
    check(MPI_Isend(source.data(), static_cast<int>(source.size_bytes()), MPI_BYTE, following(), kRingTag, state_.data,
                    &sends_[starts_ % kAhead]),
          "MPI_Isend", state_, following());
    ++starts_;
    started_ = next(started_, Direction::out);
    return true;
  }

  /// Messages of one sender and tag arrive in order, so only the oldest of each direction is asked for.
  bool take_received() {
    bool progress = false;
    while (receipts_ < posts_) {
      int complete = 0;
      MPI_Status status;
      const int code = MPI_Test(&receives_[receipts_ % kAhead], &complete, &status);
      const std::span<T> target = segment(received_, Direction::in);
      if (is_truncation(code)) throw LengthError{-1, target.size_bytes()};
      check(code, "MPI_Test", state_, previous());
      if (!complete) break;
      int bytes = 0;
      check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count", state_, previous());
      if (static_cast<std::size_t>(bytes) != target.size_bytes()) throw LengthError{bytes, target.size_bytes()};
      if (reduces(received_.step)) add_to(target.data(), staged(receipts_), target.size());
      ++receipts_;
      received_ = next(received_, Direction::in);
      progress = true;
      while (may_start()) start();  // pass it on before anything else
    }
    return progress;
  }

  bool take_sent() {
    bool progress = false;
    while (departures_ < starts_) {
      int complete = 0;
      check(MPI_Test(&sends_[departures_ % kAhead], &complete, MPI_STATUS_IGNORE), "MPI_Test", state_, following());
      if (!complete) break;
      ++departures_;
      sent_ = next(sent_, Direction::out);
      progress = true;
    }
    return progress;
  }

  T* staged(std::size_t number) const {
    return reinterpret_cast<T*>(staging_.data() + number % kAhead * kSegmentBytes);
  }
  int previous() const { return (rank_ + size_ - 1) % size_; }
  int following() const { return (rank_ + 1) % size_; }

  const Communicator& communicator_;
  MpiSession::State& state_;
  std::span<T> data_;
  std::span<std::byte> staging_;
  int size_, rank_, first_, last_;
  Cursor posted_, received_, started_, sent_;  ///< the next of each
  std::size_t posts_ = 0, receipts_ = 0, starts_ = 0, departures_ = 0;
  std::array<MPI_Request, kAhead> receives_, sends_;
};

}  // namespace lockstep::comm
