/// \file
/// A rank that computes at a part of its speed, to see what a straggler costs (bench agree --slow-rank).
#pragma once

#include <cstdint>

#include "app/report/step_figures.hpp"

namespace lockstep::app {

/// Sleeps before each micro-step but the first ones, as long as the speed makes it last longer than those before took.
/// The sleep counts as computing, as that of a slow rank does; what else runs on the core goes on.
class Slowdown {
 public:
  /// 0 < speed <= 1, of the rank's own; 1: never sleeps.
  explicit Slowdown(double speed) : speed_(speed) {}
  /// Before a micro-step; `so_far`: what all those before took.
  void pause(const TimeSplit& so_far);

 private:
  double speed_;
  double slept_ = 0;  ///< seconds
  std::int64_t micro_steps_ = 0;
};

}  // namespace lockstep::app
