/// \file
/// A sum over ranks of several hosts that goes on step by step, beside another collective (network_communicator.hpp).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "comm/all_reduce_limits.hpp"
#include "comm/failure/failure_detector.hpp"
#include "comm/host/ring_group.hpp"

namespace lockstep::comm {

/// The schedules are RingGroup's, and so are the bits. Its messages have a tag of their own: they are not taken for
/// those of a collective on the same ring.
class StepwiseSum {
 public:
  /// `ranks`: those on the ring, in its order, this one among them. `detector` outlives this.
  StepwiseSum(FailureDetector& detector, std::vector<int> ranks);
  ~StepwiseSum();
  StepwiseSum(const StepwiseSum&) = delete;
  StepwiseSum& operator=(const StepwiseSum&) = delete;

  /// `data`: this rank's terms, then the sums; they and `parts`, which each position owns, stay as they are until it is
  /// done. The one before is done.
  void start(std::span<double> data, const RingParts& parts, AllReduceSchedule schedule);
  /// Does what can be done without waiting; true when anything could. Throws PeerError.
  bool advance();
  bool done() const;
  /// After an error: what has not come is called back.
  void abandon() noexcept;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace lockstep::comm
