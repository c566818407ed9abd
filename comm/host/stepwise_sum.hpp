/// \file
/// A sum over ranks of several hosts that advances step by step, concurrently with another collective
/// (network_communicator.hpp).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "comm/all_reduce_limits.hpp"
#include "comm/failure/failure_detector.hpp"
#include "comm/host/ring_group.hpp"

namespace lockstep::comm {

/// Schedules and bits are those of RingGroup. The messages have a tag of their own, so they do not match those of a
/// collective on the same ring.
class StepwiseSum {
 public:
  /// `ranks`: on the ring, in its order, including this one. `detector` outlives this.
  StepwiseSum(FailureDetector& detector, std::vector<int> ranks);
  ~StepwiseSum();
  StepwiseSum(const StepwiseSum&) = delete;
  StepwiseSum& operator=(const StepwiseSum&) = delete;

  /// `data`: this rank's terms, then the sums. `parts`: the part of each position. Both must stay unchanged until the
  /// sum is done. The previous sum must be done.
  void start(std::span<double> data, const RingParts& parts, AllReduceSchedule schedule);
  /// Does all work that needs no waiting; true if there was any. Throws PeerError.
  bool advance();
  bool done() const;
  /// Cancels outstanding receives after an error.
  void abandon() noexcept;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace lockstep::comm
