/// \file
/// What bench agree tells: a table for people, rows for programs, a picture. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "io/runs/metrics_log.hpp"

namespace lockstep::app {

/// A validation on the way.
struct AgreeValidation {
  std::int64_t step = 0;
  double samples = 0;  ///< seen until then by all ranks
  double seconds = 0;  ///< of training until then
  double loss = 0, metric = 0;
};

/// One training, as far as it came.
struct AgreeTraining {
  std::size_t mode = 0;  ///< index
  double rate = 0;
  std::int64_t seed = 0;
  bool diverged = false;
  std::vector<AgreeValidation> validations = {};
};

/// What is compared, and what counts.
struct AgreeSetting {
  std::vector<std::string> modes;                      ///< names
  std::string network, metric;                         ///< the metric's key: "accuracy"
  std::function<bool(double, double)> is_better = {};  ///< of two metrics
  std::optional<double> target = {};                   ///< of the metric: a training ends where it reaches it
  int workers = 1;
  std::int64_t global_batch = 0;
  std::string slow;  ///< "rank 3 at 0.2 of its speed"; "": none
};

/// Where a training reached the target; nullptr: nowhere.
const AgreeValidation* reached(const AgreeTraining& training, const AgreeSetting& setting);
/// Of trainings of one mode with one seed the best: which reaches the target first, else whose last loss is least.
/// `trainings` not empty.
const AgreeTraining& best_of(const std::vector<AgreeTraining>& trainings, const AgreeSetting& setting);

/// What was compared, then a row for each mode: with a target how long it took, else what came out. `chosen`: each
/// mode's trainings at its rate. The modes' ratios are to the first one.
std::string format_table(const std::vector<AgreeTraining>& chosen, const AgreeSetting& setting);
/// A line for each validation of each training, with a head.
std::string format_csv(const std::vector<AgreeTraining>& all, const std::vector<AgreeTraining>& chosen,
                       const AgreeSetting& setting);
/// Likewise, an object a line.
std::vector<io::MetricRecord> to_records(const std::vector<AgreeTraining>& all,
                                         const std::vector<AgreeTraining>& chosen, const AgreeSetting& setting);
/// The loss over samples and over seconds, below each other: of each mode the training of the middle.
std::string format_svg(const std::vector<AgreeTraining>& chosen, const AgreeSetting& setting);

}  // namespace lockstep::app
