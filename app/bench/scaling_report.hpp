/// \file
/// Reports of bench scale: a table for people, rows for programs, a chart. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "app/bench/scaling.hpp"
#include "io/runs/metrics_log.hpp"

namespace lockstep::app {

/// Results by ascending number of ranks; efficiencies are relative to the first.
struct ScalingCurve {
  std::string kind;  ///< "weak", "strong"
  std::vector<ScalingPoint> points;
};

/// Settings common to all measurements.
struct ScalingSetting {
  std::string network, backend, optimizer, input;
  std::int64_t batch = 0, accumulate = 1;
  std::int64_t rounds = 0, warmup = 0, repeat = 0;
};

std::string format_setting(const ScalingSetting& setting);
/// Formats a head, a row for each number of ranks, the stragglers, and a sentence for each row but the first. At most
/// 120 columns.
std::string format_table(const ScalingCurve& curve);
/// All curves, with a head.
std::string format_csv(const std::vector<ScalingCurve>& curves);
/// Returns a record for each number of ranks of each curve.
std::vector<io::MetricRecord> to_records(const std::vector<ScalingCurve>& curves, const ScalingSetting& setting);
/// Draws the efficiency over the ranks and, below it for each curve, the parts of a step's time.
std::string format_svg(const std::vector<ScalingCurve>& curves, const ScalingSetting& setting);

}  // namespace lockstep::app
