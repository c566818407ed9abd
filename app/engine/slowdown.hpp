/// \file
/// A rank that computes at a fraction of its speed, to measure the cost of a straggler.
#pragma once

#include <cstdint>

#include "app/report/step_figures.hpp"

namespace lockstep::app {

/// Sleeps before each micro-step except the first ones. The length follows from the speed and the average time of the
/// previous micro-steps. The sleep counts as computing, as on a slow rank; other work on the core continues.
class Slowdown {
 public:
  /// Fraction of the rank's own speed, 0 < speed <= 1; 1: never sleeps.
  explicit Slowdown(double speed) : speed_(speed) {}
  /// Call before a micro-step; `so_far`: times of all previous ones.
  void pause(const TimeSplit& so_far);

 private:
  double speed_;
  double slept_ = 0;  ///< seconds
  std::int64_t micro_steps_ = 0;
};

}  // namespace lockstep::app
