#include "app/train/patience.hpp"

#include <cmath>
#include <limits>
#include <utility>

namespace lockstep::app {

Patience::Patience(std::int64_t validations, double min_delta, std::function<bool(double, double)> is_better)
    : validations_(validations),
      min_delta_(is_better(1, 0) ? min_delta : -min_delta),
      is_better_(std::move(is_better)),
      best_(std::numeric_limits<double>::quiet_NaN()) {}

void Patience::saw(double metric) {
  const bool better = std::isnan(best_) || is_better_(metric, best_ + min_delta_);
  if (better) best_ = metric;
  in_vain_ = better ? 0 : in_vain_ + 1;
}

}  // namespace lockstep::app
