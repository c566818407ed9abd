/// \file
/// Reports of bench agree: a table for people, rows for programs, a picture. Pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "io/runs/metrics_log.hpp"

namespace lockstep::app {

/// A validation during a training.
struct AgreeValidation {
  std::int64_t step = 0;
  double samples = 0;  ///< total seen so far by all ranks
  double seconds = 0;  ///< training time so far
  double loss = 0, metric = 0;
};

/// One training, as far as it ran.
struct AgreeTraining {
  std::size_t mode = 0;  ///< index
  double rate = 0;
  std::int64_t seed = 0;
  bool diverged = false;
  std::vector<AgreeValidation> validations = {};
};

/// The subject of a comparison and its criteria.
struct AgreeSetting {
  std::vector<std::string> modes;                      ///< names
  std::string network, metric;                         ///< the metric's key: "accuracy"
  std::function<bool(double, double)> is_better = {};  ///< compares two metrics
  std::optional<double> target = {};                   ///< target metric: a training ends when it reaches it
  int workers = 1;
  std::int64_t global_batch = 0;
  std::string slow;  ///< "rank 3 at 0.2 of its speed"; "": none
};

/// The validation at which a training reached the target; nullptr: none.
const AgreeValidation* reached(const AgreeTraining& training, const AgreeSetting& setting);
/// The best of trainings of one mode with one seed: the first to reach the target, otherwise the one with the least
/// last loss. `trainings` not empty.
const AgreeTraining& best_of(const std::vector<AgreeTraining>& trainings, const AgreeSetting& setting);

/// The setting, then a row for each mode: with a target the time to reach it, otherwise the result. `chosen`: each
/// mode's trainings at its chosen rate. The modes' ratios refer to the first one.
std::string format_table(const std::vector<AgreeTraining>& chosen, const AgreeSetting& setting);
/// A head, and a line for each validation of each training.
std::string format_csv(const std::vector<AgreeTraining>& all, const std::vector<AgreeTraining>& chosen,
                       const AgreeSetting& setting);
/// The same as JSON records, one per validation.
std::vector<io::MetricRecord> to_records(const std::vector<AgreeTraining>& all,
                                         const std::vector<AgreeTraining>& chosen, const AgreeSetting& setting);
/// The loss over samples and over seconds, below each other; shows each mode's median training.
std::string format_svg(const std::vector<AgreeTraining>& chosen, const AgreeSetting& setting);

}  // namespace lockstep::app
