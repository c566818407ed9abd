/// \file
/// Ranks on a ring: each talks to its two neighbours, so that every link carries the same load, in both directions, all
/// the time.
///
/// WHAT IS SPLIT. The elements fall into p nearly equal parts, one for each position on the ring; the rank at position
/// r ends up with the sum of part r.
///
/// REDUCE-SCATTER, steps s = 0 … p-2: position r sends part (r - s - 1) mod p to position r+1, receives part
/// (r - s - 2) mod p from position r-1 and adds its own elements to it. A part starts at the position after its owner,
/// passes every rank once, gathers a term at each, and is complete where it is owned: at step p-2 position r receives
/// part (r - p) mod p = r.
///
/// ALL-GATHER, steps s = p-1 … 2p-3: the same rule, but what is received is final and replaces what is there; at step
/// p-1 position r sends part (r - p) mod p = r, its own. An all-reduce is both, steps 0 … 2p-3, without a pause
/// between.
///
/// BYTES. Each rank sends (and receives) 2 (p-1) parts of count/p elements: 2 (p-1)/p * count elements, the least any
/// all-reduce can do. The order of a part's additions is its way round the ring: fixed, and one rank completes it, so
/// the result has the same bits on every rank and in every run.
///
/// PIPELINE. Parts travel in segments of 61,440 bytes (Open MPI's TCP sends up to 64 KiB with the header at once;
/// larger messages ask first and cost 20-60 % more), those of short parts in quarters, down to 8 KiB. A segment of step
/// s+1 leaves as soon as the same segment of step s has come in, with several receives posted ahead, so the p-1 steps
/// overlap and a transfer is bound by the wire, not by 2(p-1) latencies of a part each.
///
/// WINDOW. A rank posts receives for 960 KiB ahead, and has as much sent that has not left: enough for a link of
/// 10 Gbit/s. Where networks are faster it is what has come in 2 ms of the collective before, up to 4 MiB: 100 Gbit/s
/// for 340 us, which is a message's way and the sleep of a thread that shares its core (200 us), or 400 Gbit/s for
/// 84 us; K rings of a host, each with a window, share its link. On slow links more would only fill queues. That is the
/// ring's memory, twice as much where it rounds. The order of the additions does not depend on it, nor do the bits.
/// Where sums may overtake (network_communicator.hpp) it stays at 960 KiB: their messages wait for what a connection
/// has been handed before.
///
/// ROUNDED to bfloat16 the same segments carry twice the elements. Every rank adds in float and rounds once: what it
/// sends of the partial sums (the errors of p roundings, 2^-8 relative to the partial sum each), the owner the final
/// sum, which then goes round unchanged and which the owner keeps as it is rounded: the same bits on every rank. With
/// error feedback (Seide et al. 2014, "1-bit stochastic gradient descent"; Karimireddy et al. 2019, "Error feedback
/// fixes SignSGD") a rank keeps what its rounding took away and adds it to its term of the next sum, so over many sums
/// nothing is lost. As 8-BIT integers with a scale for each block of 64 they carry four times the elements, likewise; a
/// block is of one segment, so it is the same on every rank.
///
/// FEW ROUNDS. A ring takes 2 (p-1) messages one after the other, however small they are. Smaller sums go by doubling
/// (doubling.hpp) in ceil(log2 p) rounds, or by halving (halving_rounds.hpp) in twice as many. By doubling they travel
/// whole, and in full whatever the wire format is: not their bytes but the rounds take the time. a + b and b + a have
/// the same bits, and so have all members of a group and, by induction, all ranks. By halving the bytes are those of
/// the ring, rounded as there, ceil(log2 p) times instead of p - 1. AllReduceLimits says which sums take what, by the
/// bytes of the data, the same on all ranks. The halves of a sum follow the sum of that size, so that they have its
/// bits.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/failure/failure_detector.hpp"
#include "comm/host/halving_rounds.hpp"
#include "comm/host/message_exchange.hpp"
#include "comm/session/doubling.hpp"

namespace lockstep::comm {

/// How sums travel between hosts. Within a host they are read where they lie, in full.
struct Wire {
  /// Where it rounds each rank rounds what it passes on, once per element, and adds in float32. All ranks end with the
  /// same bits.
  WireFormat format = WireFormat::fp32;
  /// Where it rounds, as long as the data, or empty: what this rank's rounding took away is kept there and added to its
  /// part of the next sum (error_feedback.hpp). Zero at the start.
  std::span<float> residual = {};
};

/// What each position on a ring owns, as disjoint slices of the data; built anew for each collective without allocating
/// (after the first).
class RingParts {
 public:
  void clear() noexcept { slices_.clear(), ends_.clear(); }
  void add(Slice slice) { slices_.push_back(slice); }
  /// The next slices are those of the next position.
  void end_position() { ends_.push_back(slices_.size()); }

  std::span<const Slice> of(int position) const {
    const auto i = static_cast<std::size_t>(position);
    const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::span(slices_).subspan(begin, ends_[i] - begin);
  }

 private:
  std::vector<Slice> slices_;
  std::vector<std::size_t> ends_;
};

/// Memory for what goes and what comes in a round; kept between sums.
struct RoundMemory {
  std::vector<std::byte> out, in;
};

/// The same of a ring: segments received to be added, segments rounded to be sent, and the messages under way.
struct RingMemory {
  /// At least `bytes`, not written to: pages that are never needed take no memory.
  void take_staging(std::size_t bytes) {
    if (bytes <= staging_bytes) return;
    staging.reset();
    staging = std::make_unique_for_overwrite<std::byte[]>(bytes);
    staging_bytes = bytes;
  }

  std::unique_ptr<std::byte[]> staging;
  std::size_t staging_bytes = 0;
  std::vector<MPI_Request> receives, sends;
};

enum class RingPhases { reduce_scatter, all_gather, all_reduce };

/// Where a rank's terms come from and its results go, when that is not simply the data. Called segment by segment.
class SegmentHandler {
 public:
  SegmentHandler() = default;
  virtual ~SegmentHandler() = default;
  SegmentHandler(const SegmentHandler&) = delete;
  SegmentHandler& operator=(const SegmentHandler&) = delete;

  /// data[slice] has to become this rank's term (what it owns, in an all-gather); once for each element.
  virtual void load(Slice) {}
  /// data[slice] is final; once for each element that is final on this rank at the end.
  virtual void unload(Slice) {}
};

/// What a collective does on the ring.
struct RingWork {
  RingPhases phases = RingPhases::all_reduce;
  AllReduceSchedule schedule = AllReduceSchedule::ring;
  Collective operation = Collective::all_reduce;  ///< what the rank is in, for messages
};

class RingGroup {
 public:
  /// `ranks`: those on the ring, in its order, this one among them. `detector` outlives this.
  RingGroup(FailureDetector& detector, std::vector<int> ranks);

  int size() const noexcept { return static_cast<int>(ranks_.size()); }
  int position() const noexcept { return position_; }

  /// Nothing happens on a ring of one.
  void run(std::span<float> data, const RingParts& parts, const Wire& wire, SegmentHandler& handler,
           const RingWork& work);
  void run(std::span<double> data, const RingParts& parts, SegmentHandler& handler, const RingWork& work);
  /// Bytes are only gathered.
  void run(std::span<std::byte> data, const RingParts& parts, SegmentHandler& handler, const RingWork& work);
  /// By doubling, in place. An empty sum is a barrier.
  void sum_small(std::span<float> data, Collective operation);
  void sum_small(std::span<double> data, Collective operation);

 private:
  template <class T, class OnWire>
  void run_as(std::span<T> data, std::span<float> residual, const RingParts& parts, SegmentHandler& handler,
              const RingWork& work);
  /// Until it is done.
  template <class Schedule>
  void drive(Schedule& schedule, Collective operation);
  template <class T, class OnWire>
  void run_ring(std::span<T> data, std::span<float> residual, const RingParts& parts, SegmentHandler& handler,
                const RingWork& work);
  template <class T>
  void run_doubling(std::span<T> data, const RingParts& parts, SegmentHandler& handler, const RingWork& work);
  template <class T>
  void double_in_place(std::span<T> data, Collective operation);
  int rank_at(int position) const { return ranks_[static_cast<std::size_t>((position + size()) % size())]; }

  FailureDetector& detector_;
  std::vector<int> ranks_;
  int position_ = 0;
  std::vector<DoublingRound> doubling_;
  std::vector<HalvingRound> halving_;
  MessageExchange exchange_;
  RoundMemory memory_;  ///< of a sum in few rounds
  RingMemory ring_memory_;
  std::size_t window_;  ///< of the next collective on the ring
};

}  // namespace lockstep::comm
