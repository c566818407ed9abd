/// \file
/// One collective on a ring: the order and conditions of its segments. Private to ring_group.cpp; the essay is in
/// ring_group.hpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <type_traits>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/host/int8_blocks.hpp"
#include "comm/host/ring_group.hpp"
#include "comm/host/stepwise_sum.hpp"
#include "comm/host/summation.hpp"
#include "comm/session/mpi_state.hpp"

namespace lockstep::comm {

/// Largest segment on the wire, bytes; see ring_group.hpp.
inline constexpr std::size_t kSegmentBytes = 61440;
/// Smaller segments do not justify a message of their own.
inline constexpr std::size_t kMinSegmentBytes = 8192;
/// Segments per part for small parts, so that as many steps of the ring overlap.
inline constexpr std::size_t kSegmentsOfSmallPart = 4;
/// Bytes posted ahead in each direction; see WINDOW in ring_group.hpp.
inline constexpr std::size_t kMinWindowBytes = std::size_t{960} << 10;
inline constexpr std::size_t kMaxWindowBytes = std::size_t{4} << 20;
/// Window of a ring on a network with this throughput.
constexpr std::size_t window_for(double bytes_per_second) noexcept {
  constexpr double kSeconds = 2e-3, kMax{kMaxWindowBytes};
  return std::max(kMinWindowBytes, static_cast<std::size_t>(std::min(bytes_per_second * kSeconds, kMax)));
}
/// Largest number of segments in the window, because each message has a cost in MPI.
inline constexpr std::size_t kMaxAhead = 128;
/// Largest number of received segments handled before other work.
inline constexpr int kTakenAtOnce = 16;

/// The neighbour's message has another length (-1: a longer one) than expected: the neighbour is in another collective.
struct LengthError {
  std::int64_t got = 0;
  std::size_t expected = 0;
};

/// Position in the stream of segments: step of the ring, slice of that step's part, segment of that slice.
struct Cursor {
  int step = 0;
  std::size_t part = 0;
  std::size_t segment = 0;
  auto operator<=>(const Cursor&) const = default;
};

/// One rank's view of a ring.
struct RingPosition {
  int size = 1;
  int position = 0;   ///< this rank's position on the ring
  int previous = 0;   ///< rank, in the session, of the predecessor, the source of all data
  int following = 0;  ///< rank, in the session, of the successor
  int tag = kDataTag;
  std::size_t window = kMinWindowBytes;  ///< size of the window, bytes
};

/// Encoding of a segment's elements on the wire.
template <class OnWire>
struct WireCode {
  static constexpr std::size_t bytes(std::size_t elements) { return elements * sizeof(OnWire); }
  static constexpr std::size_t elements(std::size_t bytes) { return bytes / sizeof(OnWire); }
};
template <>
struct WireCode<Bf16> {
  static constexpr std::size_t bytes(std::size_t elements) { return elements * sizeof(Bf16); }
  static constexpr std::size_t elements(std::size_t bytes) { return bytes / sizeof(Bf16); }
  static void round(Bf16* to, const float* from, float* errors, std::size_t n) { round_to_bf16(to, from, errors, n); }
  static void round_in_place(float* values, float* errors, std::size_t n) { comm::round_in_place(values, errors, n); }
  static void widen(float* to, const Bf16* from, std::size_t n) { comm::widen(to, from, n); }
  static void add_to(float* sum, const Bf16* term, std::size_t n) { comm::add_to(sum, term, n); }
};
template <>
struct WireCode<Int8Blocks> : Int8Blocks {
  static void round(Int8Blocks* to, const float* from, float* errors, std::size_t n) { pack(to, from, errors, n); }
  static void round_in_place(float* values, float* errors, std::size_t n) { pack_in_place(values, errors, n); }
  static void widen(float* to, const Int8Blocks* from, std::size_t n) { unpack(to, from, n); }
  static void add_to(float* sum, const Int8Blocks* term, std::size_t n) { add_unpacked(sum, term, n); }
};

/// Elements T travel as OnWire: unchanged, or rounded (Bf16, Int8Blocks). Bytes are only gathered.
template <class T, class OnWire>
class RingSum final : public StepwiseSum {
 public:
  using Code = WireCode<OnWire>;
  static constexpr bool kRounds = !std::is_same_v<T, OnWire>;
  /// `residual`: rounding errors, as long as `data`; or empty. All arguments outlive this.
  RingSum(const RingPosition& ring, MpiSession::State& state, std::span<T> data, std::span<float> residual,
          const RingParts& parts, SegmentHandler& handler, RingPhases phases, RingMemory& memory)
      : ring_(ring),
        state_(state),
        data_(data),
        residual_(residual),
        parts_(parts),
        handler_(handler),
        memory_(memory),
        segment_(segment_elements(ring.size, parts)),
        place_(whole_lines(Code::bytes(segment_))),
        ahead_(std::min({ring.window / place_, kMaxAhead, most_segments(ring.size, parts)})),
        first_(phases == RingPhases::all_gather ? ring.size - 1 : 0),
        last_(phases == RingPhases::reduce_scatter ? ring.size - 1 : 2 * (ring.size - 1)) {
    posted_ = received_ = loaded_ = settled({first_, 0, 0}, Direction::in);
    started_ = sent_ = settled({first_, 0, 0}, Direction::out);
    // Reserve for the largest window: growing windows allocate nothing.
    memory_.take_staging((kRounds ? 2 : 1) * kMaxWindowBytes);
    memory_.receives.reserve(kMaxAhead);
    memory_.sends.reserve(kMaxAhead);
    memory_.receives.assign(ahead_, MPI_REQUEST_NULL);
    memory_.sends.assign(ahead_, MPI_REQUEST_NULL);
  }

  /// Receives go into the data and the staging memory.
  ~RingSum() override {
    const std::lock_guard lock(*state_.mpi);
    call_back(memory_.receives);
  }

  /// Rate at which segments have arrived; 0: too few to measure it.
  double bytes_per_second() const {
    constexpr std::size_t kEnough = 32;
    const std::chrono::duration<double> passed = last_receipt_ - first_receipt_;
    return receipts_ < kEnough ? 0 : static_cast<double>(receipts_ * Code::bytes(segment_)) / passed.count();
  }

  Progress advance() override {
    bool progress = false;
    while (may_post()) progress = post();
    while (may_start()) progress = start();
    progress = take_received() || progress;
    progress = take_sent() || progress;
    progress = progress || load_ahead();
    const bool done = received_.step == last_ && sent_.step == last_;
    return done ? Progress::done : progress ? Progress::some : Progress::none;
  }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Direction { in, out };

  static std::size_t whole_lines(std::size_t bytes) {
    constexpr std::size_t kCacheLine = 64;
    return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  }

  /// Number of elements per segment. The same on every rank, because all know all parts.
  static std::size_t segment_elements(int size, const RingParts& parts) {
    std::size_t longest = 0;
    for (int position = 0; position < size; ++position) {
      for (const Slice& part : parts.of(position)) longest = std::max(longest, part.count);
    }
    const std::size_t bytes = whole_lines(Code::bytes(longest) / kSegmentsOfSmallPart);
    return Code::elements(std::clamp(bytes, kMinSegmentBytes, kSegmentBytes));
  }

  /// Upper bound of the segments that a rank receives; at least one.
  std::size_t most_segments(int size, const RingParts& parts) const {
    std::size_t segments = 0;
    for (int position = 0; position < size; ++position) {
      for (const Slice& part : parts.of(position)) segments += (part.count + segment_ - 1) / segment_;
    }
    return std::max<std::size_t>(2 * segments, 1);
  }

  bool reduces(int step) const { return step < ring_.size - 1; }

  std::span<const Slice> parts(int step, Direction direction) const {
    const int behind = step + (direction == Direction::out ? 1 : 2);
    return parts_.of(((ring_.position - behind) % ring_.size + ring_.size) % ring_.size);
  }

  /// The first existing segment from `at` on: empty parts have none.
  Cursor settled(Cursor at, Direction direction) const {
    while (at.step < last_) {
      const std::span<const Slice> all = parts(at.step, direction);
      if (at.part == all.size()) {
        at = {at.step + 1, 0, 0};
      } else if (at.segment * segment_ >= all[at.part].count) {
        at = {at.step, at.part + 1, 0};
      } else {
        break;
      }
    }
    return at;
  }

  Cursor next(Cursor at, Direction direction) const { return settled({at.step, at.part, at.segment + 1}, direction); }

  Slice segment(Cursor at, Direction direction) const {
    const Slice part = parts(at.step, direction)[at.part];
    const std::size_t offset = at.segment * segment_;
    return {.offset = part.offset + offset, .count = std::min(segment_, part.count - offset)};
  }

  /// In the gathering half a segment is received in place unless it must be widened. This is allowed only after its
  /// partial sum, which this rank sent size - 1 steps before, has left.
  bool may_post() const {
    if (posted_.step == last_ || posts_ - receipts_ == ahead_) return false;
    if (kRounds || reduces(posted_.step)) return true;
    return Cursor{posted_.step + 1 - ring_.size, posted_.part, posted_.segment} < sent_;
  }

  bool post() {
    const Slice target = segment(posted_, Direction::in);
    void* const buffer =
        kRounds || reduces(posted_.step) ? static_cast<void*>(incoming(posts_)) : &data_[target.offset];
    const std::lock_guard lock(*state_.mpi);
    check(MPI_Irecv(buffer, static_cast<int>(Code::bytes(target.count)), MPI_BYTE, ring_.previous, ring_.tag,
                    state_.data, &memory_.receives[posts_ % ahead_]),
          "MPI_Irecv", state_, ring_.previous);
    ++posts_;
    posted_ = next(posted_, Direction::in);
    return true;
  }

  /// The first step sends this rank's own part; later, a segment is forwarded after it has arrived in the preceding
  /// step.
  bool may_start() const {
    if (started_.step == last_ || starts_ - departures_ == ahead_) return false;
    return started_.step == first_ || Cursor{started_.step - 1, started_.part, started_.segment} < received_;
  }

  bool start() {
    const Slice source = segment(started_, Direction::out);
    if (started_.step == first_) load(source);
    const void* const buffer = packed(source);
    {
      const std::lock_guard lock(*state_.mpi);
      check(MPI_Isend(buffer, static_cast<int>(Code::bytes(source.count)), MPI_BYTE, ring_.following, ring_.tag,
                      state_.data, &memory_.sends[starts_ % ahead_]),
            "MPI_Isend", state_, ring_.following);
    }
    if (started_.step == first_ && !reduces(first_)) handler_.unload(source);
    ++starts_;
    started_ = next(started_, Direction::out);
    return true;
  }

  /// The elements in their wire format.
  const void* packed(Slice source) const {
    T* const values = &data_[source.offset];
    if constexpr (kRounds) {
      OnWire* const rounded = outgoing(starts_);
      // Gathered elements have been rounded by their owner, and rounding does not change them.
      Code::round(rounded, values, reduces(started_.step) ? errors(source) : nullptr, source.count);
      return rounded;
    } else {
      return values;
    }
  }

  struct Tested {
    bool complete = false;
    int bytes = 0;
    int code = MPI_SUCCESS;
  };
  /// The oldest receive.
  Tested test_receive() {
    const std::lock_guard lock(*state_.mpi);
    int complete = 0, bytes = 0;
    MPI_Status status;
    const int code = MPI_Test(&memory_.receives[receipts_ % ahead_], &complete, &status);
    if (code == MPI_SUCCESS && complete) {
      check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count", state_, ring_.previous);
    }
    return {.complete = complete != 0, .bytes = bytes, .code = code};
  }

  /// Messages of one sender and tag arrive in order, so only the oldest of each direction is asked for.
  bool take_received() {
    bool progress = false;
    for (int taken = 0; receipts_ < posts_ && taken < kTakenAtOnce; ++taken) {
      const auto [complete, bytes, code] = test_receive();
      const Slice target = segment(received_, Direction::in);
      const std::size_t expected = Code::bytes(target.count);
      if (is_truncation(code)) throw LengthError{-1, expected};
      check(code, "MPI_Test", state_, ring_.previous);
      if (!complete) break;
      if (static_cast<std::size_t>(bytes) != expected) throw LengthError{bytes, expected};
      take_in(target);
      const bool final = received_.step >= ring_.size - 2;
      if (receipts_++ == 0) first_receipt_ = Clock::now();
      received_ = next(received_, Direction::in);
      progress = true;
      while (may_start()) start();  // forward it before anything else
      if (final) handler_.unload(target);
    }
    if (progress) last_receipt_ = Clock::now();
    return progress;
  }

  bool take_sent() {
    bool progress = false;
    while (departures_ < starts_) {
      int complete = 0;
      const std::lock_guard lock(*state_.mpi);
      check(MPI_Test(&memory_.sends[departures_ % ahead_], &complete, MPI_STATUS_IGNORE), "MPI_Test", state_,
            ring_.following);
      if (!complete) break;
      ++departures_;
      sent_ = next(sent_, Direction::out);
      progress = true;
    }
    return progress;
  }

  void take_in(Slice target) {
    T* const values = &data_[target.offset];
    if (!reduces(received_.step)) {
      if constexpr (kRounds) Code::widen(values, incoming(receipts_), target.count);
      return;
    }
    while (loaded_ <= received_) load_next();
    if constexpr (kRounds) {
      Code::add_to(values, incoming(receipts_), target.count);
    } else if constexpr (!std::is_same_v<T, std::byte>) {
      add_to(values, incoming(receipts_), target.count);
    }
    if constexpr (kRounds) {
      if (received_.step < ring_.size - 2) return;
      if (sends_on()) {  // it is sent in rounded form, so this rank keeps the rounded values
        Code::round_in_place(values, errors(target), target.count);
      } else if (float* const none = errors(target)) {
        std::fill_n(none, target.count, 0.0f);
      }
    }
  }

  /// Loads data[slice] with this rank's term.
  void load(Slice slice) {
    handler_.load(slice);
    if constexpr (kRounds) {
      if (reduces(first_) && !residual_.empty()) add_to(&data_[slice.offset], errors(slice), slice.count);
    }
  }

  void load_next() {
    load(segment(loaded_, Direction::in));
    loaded_ = next(loaded_, Direction::in);
  }

  /// Loads terms while nothing arrives.
  bool load_ahead() {
    if (loaded_.step == last_ || !reduces(loaded_.step)) return false;
    load_next();
    return true;
  }

  /// True if a gathering follows the sums.
  bool sends_on() const { return last_ >= ring_.size; }
  float* errors(Slice slice) const { return residual_.empty() ? nullptr : &residual_[slice.offset]; }
  OnWire* incoming(std::size_t number) const { return staged(number % ahead_); }
  OnWire* outgoing(std::size_t number) const { return staged(ahead_ + number % ahead_); }
  OnWire* staged(std::size_t index) const { return reinterpret_cast<OnWire*>(memory_.staging.get() + index * place_); }

  RingPosition ring_;
  MpiSession::State& state_;
  std::span<T> data_;
  std::span<float> residual_;
  const RingParts& parts_;
  SegmentHandler& handler_;
  RingMemory& memory_;
  std::size_t segment_;  ///< number of elements
  std::size_t place_;    ///< bytes of memory per segment in the wire format
  std::size_t ahead_;    ///< number of segments posted in each direction
  int first_, last_;
  Cursor posted_, received_, started_, sent_;  ///< next segment to be posted, received, started and sent
  Cursor loaded_;                              ///< next incoming segment that is not yet loaded with this rank's term
  std::size_t posts_ = 0, receipts_ = 0, starts_ = 0, departures_ = 0;
  Clock::time_point first_receipt_, last_receipt_;
};

}  // namespace lockstep::comm
