/// \file
/// Figures and times of training steps.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "model/step_status.hpp"

namespace lockstep::app {

/// Times of some steps on this rank, in seconds.
struct TimeSplit {
  double input = 0;          ///< waiting for samples
  double compute = 0;        ///< forward, backward, update
  double communication = 0;  ///< exposed: this thread waited for it
  double total = 0;          ///< wall clock, without evaluations and checkpoints
  double other() const noexcept {
    return total - input - compute - communication;
  }  ///< time between the steps: reports
};
/// The time between two points of a run.
TimeSplit operator-(const TimeSplit& later, const TimeSplit& earlier);
/// "input 0.1 %  compute 84 %  communication 14 %  other 2 %"
std::string format_split(const TimeSplit& split);

/// Advice if one rank would have made `steps` steps sooner than `world` ranks with this split: a sentence with figures.
/// One rank would compute their parts one after another, without communication. "": it would not, or there are too few
/// steps to tell.
std::string advise_one_rank(const TimeSplit& split, int world, std::int64_t steps);
/// Says again what the plan said about a faster precision (`faster`; empty: nothing), and what share of the time it is
/// about; empty for a short run, whose plan is still in sight, and for one that mostly waited.
std::string advise_precision(const TimeSplit& split, const std::string& faster);

/// One finished step; sums are over all ranks.
struct StepFigures {
  std::int64_t step = 0;  ///< number of updates done
  double epoch = 0;       ///< epochs done, as a fraction
  double loss_sum = 0;
  double metric_sum = 0;
  std::array<double, model::kMaxLosses> losses = {};  ///< sum of each of several losses
  double samples = 0;
  double learning_rate = 0;
  double gradient_norm = 0;
};

}  // namespace lockstep::app
