/// \file
/// Early stopping: how long validations have brought nothing better.
#pragma once

#include <cstdint>
#include <functional>

namespace lockstep::app {

/// Counts validations in a row that were not better than the best before them. Every rank counts alike: all of them
/// know every metric.
class Patience {
 public:
  /// `validations`: how many in a row end a run; 0: none ever does. Better is by more than `min_delta`, in the
  /// direction that `is_better` tells of two metrics.
  Patience(std::int64_t validations, double min_delta, std::function<bool(double, double)> is_better);

  void saw(double metric);
  /// Where a resumed run goes on.
  void go_on(double best, std::int64_t in_vain) noexcept { best_ = best, in_vain_ = in_vain; }

  bool is_over() const noexcept { return validations_ > 0 && in_vain_ >= validations_; }
  std::int64_t in_vain() const noexcept { return in_vain_; }
  double best() const noexcept { return best_; }  ///< NaN: nothing has been seen

 private:
  std::int64_t validations_;
  double min_delta_;  ///< with the sign of an improvement
  std::function<bool(double, double)> is_better_;
  double best_;
  std::int64_t in_vain_ = 0;
};

}  // namespace lockstep::app
