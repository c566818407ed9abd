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
  double communication = 0;  ///< exposed: this thread waited for communication
  double total = 0;          ///< wall clock, without evaluations and checkpoints
  /// Time between the steps: reports.
  double other() const noexcept { return total - input - compute - communication; }
};
/// The times between two points of a run.
TimeSplit operator-(const TimeSplit& later, const TimeSplit& earlier);
/// "input 0.1 %  compute 84 %  communication 14 %  other 2 %"
std::string format_split(const TimeSplit& split);

/// Returns a sentence of advice if one rank would have made `steps` steps sooner than `world` ranks with this split; ""
/// if not, or if there are too few steps. One rank would compute all parts one after another, without communication.
std::string advise_one_rank(const TimeSplit& split, int world, std::int64_t steps);
/// Repeats the plan's advice about a faster precision (`faster`; "": there was none), with the share of the time that
/// it concerns. Returns "" for a short run, whose plan is still visible, and for one that mostly waited.
std::string advise_precision(const TimeSplit& split, const std::string& faster);

/// One finished step; sums are over all ranks.
struct StepFigures {
  std::int64_t step = 0;  ///< number of updates done
  double epoch = 0;       ///< epochs done, as a fraction
  double loss_sum = 0;
  double metric_sum = 0;
  std::array<double, model::kMaxLosses> losses = {};  ///< sum of each loss, if there are several
  double samples = 0;
  double learning_rate = 0;
  double gradient_norm = 0;
};

}  // namespace lockstep::app
