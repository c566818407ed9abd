/// \file
/// Early stopping after too many validations without improvement.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

namespace lockstep::app {

/// Counts consecutive validations that were not better than the best before them. All ranks know every metric, so all
/// have the same count.
class Patience {
 public:
  /// `validations`: number of consecutive validations without improvement that ends a run; 0: no limit. A metric is an
  /// improvement if it is better than the best, by `is_better`, by more than `min_delta`.
  Patience(std::int64_t validations, double min_delta, std::function<bool(double, double)> is_better)
      : validations_(validations),
        min_delta_(is_better(1, 0) ? min_delta : -min_delta),
        is_better_(std::move(is_better)) {}

  void saw(double metric) {
    const bool better = std::isnan(best_) || is_better_(metric, best_ + min_delta_);
    if (better) best_ = metric;
    in_vain_ = better ? 0 : in_vain_ + 1;
  }
  /// Restores the count of a resumed run.
  void go_on(double best, std::int64_t in_vain) noexcept { best_ = best, in_vain_ = in_vain; }

  bool is_over() const noexcept { return validations_ > 0 && in_vain_ >= validations_; }
  std::int64_t in_vain() const noexcept { return in_vain_; }
  double best() const noexcept { return best_; }  ///< NaN: no validation so far

 private:
  std::int64_t validations_;
  double min_delta_;  ///< smallest difference that counts, with the sign of an improvement
  std::function<bool(double, double)> is_better_;
  double best_ = std::numeric_limits<double>::quiet_NaN();
  std::int64_t in_vain_ = 0;
};

}  // namespace lockstep::app
