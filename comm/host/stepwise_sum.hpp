/// \file
/// Common interface of sums between hosts: rings (ring_sum.hpp), halving (halving_sum.hpp) and doubling
/// (doubling_sum.hpp).
#pragma once

#include "comm/failure/failure_detector.hpp"

namespace lockstep::comm {

/// A sum, or one phase of it, that advances step by step. The constructor takes the data, which must stay unchanged
/// until the sum is done. The destructor cancels outstanding receives, which remain after an error.
class StepwiseSum {
 public:
  StepwiseSum() = default;
  virtual ~StepwiseSum() = default;
  StepwiseSum(const StepwiseSum&) = delete;
  StepwiseSum& operator=(const StepwiseSum&) = delete;

  /// Does all work that needs no waiting. Throws PeerError; a ring also LengthError.
  virtual Progress advance() = 0;
};

}  // namespace lockstep::comm
