/// \file
/// Ranks on a ring: each exchanges with its two neighbours, so that every link carries the same load, in both
/// directions, all the time.
///
/// DIVISION. The elements form p nearly equal parts, one for each position on the ring; the rank at position r ends up
/// with the sum of part r.
///
/// REDUCE-SCATTER, steps s = 0 … p-2: position r sends part (r - s - 1) mod p to position r+1, receives part (r - s -
/// 2) mod p from position r-1 and adds its own elements to it. A part starts at the position after its owner, passes
/// every rank once, collects a term at each, and is complete at its owner: at step p-2 position r receives part (r - p)
/// mod p = r.
///
/// ALL-GATHER, steps s = p-1 … 2p-3: the same rule, but received parts are final and replace the elements there; at
/// step p-1 position r sends part (r - p) mod p = r, its own. An all-reduce is both, steps 0 … 2p-3, without a pause
/// between.
///
/// BYTES. Each rank sends (and receives) 2 (p-1) parts of count/p elements: 2 (p-1)/p * count elements, the minimum of
/// any all-reduce. A part's path round the ring determines the order of its additions. The order is fixed and one rank
/// completes the part, so the result has the same bits on every rank and in every run.
///
/// PIPELINE. Parts travel in segments of 61,440 bytes (Open MPI's TCP sends up to 64 KiB with the header at once;
/// larger messages need a rendezvous and cost 20-60 % more). Short parts travel in quarters, down to 8 KiB. A segment
/// of step s+1 leaves as soon as the same segment of step s has arrived, with several receives posted ahead. The p-1
/// steps thus overlap, and bandwidth limits a transfer, not 2(p-1) latencies of a part each.
///
/// WINDOW. A rank posts receives for 960 KiB ahead, and has at most as much sent that has not left: enough for a link
/// of 10 Gbit/s. On faster networks the window is the amount that arrived in 2 ms of the preceding collective, up to 4
/// MiB: 100 Gbit/s for 340 us, which covers a message's latency and the sleep of a thread that shares its core (200
/// us), or 400 Gbit/s for 84 us. K rings of a host, each with a window, share its link. On slow links more would only
/// fill queues. The ring needs this amount of memory, and twice as much with rounding. The order of the additions, and
/// therefore the bits, do not depend on the window. If sums may overtake (network_communicator.hpp), the window stays
/// at 960 KiB, because their messages queue behind data already given to a connection.
///
/// ROUNDING to bfloat16: the same segments carry twice the elements. Every rank adds in float and rounds once. It
/// rounds the partial sums that it sends (p roundings with errors of 2^-8 relative to the partial sum each). The owner
/// rounds the final sum, which then travels unchanged, and keeps the rounded values: the same bits on every rank. With
/// error feedback (Seide et al. 2014, "1-bit stochastic gradient descent"; Karimireddy et al. 2019, "Error feedback
/// fixes SignSGD") a rank keeps its rounding errors and adds them to its term of the next sum, so over many sums
/// nothing is lost. 8-BIT integers with a scale for each block of 64 carry four times the elements, by the same rules.
/// A block is within one segment, so it is the same on every rank.
///
/// FEW ROUNDS. A ring sends 2 (p-1) messages in sequence, however small they are. Smaller sums use doubling
/// (doubling.hpp), in ceil(log2 p) rounds, or halving (halving_rounds.hpp), in twice as many. Doubling sends the whole
/// data, and as float32 for any wire format, because the rounds take the time, not the bytes. a + b and b + a have the
/// same bits, so all members of a group have, and by induction all ranks. Halving sends as many bytes as the ring, with
/// the same rounding, ceil(log2 p) times instead of p - 1. AllReduceLimits selects the schedule by the bytes of the
/// data, the same on all ranks. The halves of a sum use the schedule of the whole sum, so that they have its bits.
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

/// Tag of all sums: a rank in another collective gets a message of unexpected length.
inline constexpr int kDataTag = 2;
/// Tag of sums that overtake others.
inline constexpr int kUrgentTag = 6;

/// Wire format of sums between hosts. Within a host they are read in place, in full precision.
struct Wire {
  /// A rounding format rounds once per element on each rank, on sending, and adds in float32. All ranks end with the
  /// same bits.
  WireFormat format = WireFormat::fp32;
  /// With rounding: as long as the data, or empty. Holds this rank's rounding errors, which are added to its part of
  /// the next sum (error_feedback.hpp). Initially zero.
  std::span<float> residual = {};
};

/// The parts of each position on a ring, as disjoint slices of the data; rebuilt for each collective without allocating
/// (after the first).
class RingParts {
 public:
  void clear() noexcept { slices_.clear(), ends_.clear(); }
  void add(Slice slice) { slices_.push_back(slice); }
  /// Later slices belong to the next position.
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

/// Buffers for outgoing and incoming data of a round; kept between sums.
struct RoundMemory {
  std::vector<std::byte> out, in;
};

/// Buffers of a ring: received segments to be added, rounded segments to be sent, and the messages under way.
struct RingMemory {
  /// Reserves at least `bytes` without writing to them: unused pages take no memory.
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

/// Source of a rank's terms and destination of its results, if these are not simply the data. Called segment by
/// segment.
class SegmentHandler {
 public:
  SegmentHandler() = default;
  virtual ~SegmentHandler() = default;
  SegmentHandler(const SegmentHandler&) = delete;
  SegmentHandler& operator=(const SegmentHandler&) = delete;

  /// Must fill data[slice] with this rank's term (in an all-gather, with its own part); called once for each element.
  virtual void load(Slice) {}
  /// data[slice] is final; once for each element that is final on this rank at the end.
  virtual void unload(Slice) {}
};

/// Parts of a collective that run on the ring.
struct RingWork {
  RingPhases phases = RingPhases::all_reduce;
  AllReduceSchedule schedule = AllReduceSchedule::ring;
  Collective operation = Collective::all_reduce;  ///< the rank's present collective, for messages
};

class StepwiseSum;
struct RingPosition;

class RingGroup {
 public:
  /// `ranks`: on the ring, in its order, including this one. `detector` outlives this. `tag`: that of all messages;
  /// groups with different tags may work concurrently.
  RingGroup(FailureDetector& detector, std::vector<int> ranks, int tag = kDataTag);
  ~RingGroup();

  int size() const noexcept { return static_cast<int>(ranks_.size()); }
  int position() const noexcept { return position_; }

  /// Does nothing on a ring of one.
  void run(std::span<float> data, const RingParts& parts, const Wire& wire, SegmentHandler& handler,
           const RingWork& work);
  void run(std::span<double> data, const RingParts& parts, SegmentHandler& handler, const RingWork& work);
  /// Gathers bytes; bytes are never added.
  void run(std::span<std::byte> data, const RingParts& parts, SegmentHandler& handler, const RingWork& work);
  /// Sums by doubling, in place. An empty sum is a barrier.
  void sum_small(std::span<float> data, Collective operation);
  void sum_small(std::span<double> data, Collective operation);

  /// Begins an all-reduce in place, with the bits of run(), for a caller that polls. data and parts must stay unchanged
  /// until advance() returns done. Allocates nothing after the first sum.
  void begin(std::span<double> data, const RingParts& parts, AllReduceSchedule schedule);
  /// Does all work of the sum that needs no waiting. Throws PeerError.
  Progress advance();
  /// Cancels outstanding receives after an error.
  void abandon() noexcept;

 private:
  struct Begun;
  template <class T, class OnWire>
  void run_as(std::span<T> data, std::span<float> residual, const RingParts& parts, SegmentHandler& handler,
              const RingWork& work);
  Progress advance(StepwiseSum& sum, Collective operation);
  /// Advances the sum until it is done.
  void drive(StepwiseSum& sum, Collective operation);
  RingPosition ring_position() const;
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
  int tag_;
  std::vector<DoublingRound> doubling_;
  std::vector<HalvingRound> halving_;
  MessageExchange exchange_;
  RoundMemory memory_;  ///< buffers of a sum in few rounds
  RingMemory ring_memory_;
  std::size_t window_;  ///< window of the next collective on the ring
  std::unique_ptr<Begun> begun_;
};

}  // namespace lockstep::comm
