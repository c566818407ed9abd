/// \file
/// Reports of bench scale: a table for people, rows for programs, a picture. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "app/bench/scaling.hpp"
#include "io/runs/metrics_log.hpp"

namespace lockstep::app {

/// Worlds in ascending order; the first is the reference of the others' efficiency.
struct ScalingCurve {
  std::string kind;  ///< "weak", "strong"
  std::vector<ScalingPoint> points;
};

/// Settings common to all worlds.
struct ScalingSetting {
  std::string network, backend, optimizer, input;
  std::int64_t batch = 0, accumulate = 1;
  std::int64_t rounds = 0, warmup = 0, repeat = 0;
};

std::string format_setting(const ScalingSetting& setting);
/// Head, a row for each world, the stragglers, and a sentence for each world except the first. At most 120 columns.
std::string format_table(const ScalingCurve& curve);
/// All curves, with a head.
std::string format_csv(const std::vector<ScalingCurve>& curves);
/// A line for each world of each curve.
std::vector<io::MetricRecord> to_records(const std::vector<ScalingCurve>& curves, const ScalingSetting& setting);
/// Efficiency over the ranks, and for each curve the parts of a step's time, below each other.
std::string format_svg(const std::vector<ScalingCurve>& curves, const ScalingSetting& setting);

}  // namespace lockstep::app
