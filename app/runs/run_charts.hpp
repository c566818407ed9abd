/// \file
/// Charts of runs: loss, metric, learning rate, gradient norm, throughput, and the split of the time.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "app/report/chart.hpp"
#include "app/runs/run_history.hpp"

namespace lockstep::app {

struct RunChart {
  std::string id;  ///< "validation-loss": part of links
  Chart chart;
};

/// Makes the charts. For one run, they show training beside validation. For several runs, they have one line for each
/// of the best kMaxRuns by ranking_of(). Charts without a value are left out.
inline constexpr std::size_t kMaxRuns = 12;
std::vector<RunChart> charts_of(const std::vector<RunHistory>& runs, const ChartFrame& frame,
                                Progress along = Progress::automatic);

/// Returns the names of the runs without their common parent folders.
std::vector<std::string> short_names(const std::vector<RunHistory>& runs);

/// Returns at most about `most` points: the lowest and the highest of each section, and the first and the last of all.
std::vector<ChartPoint> thinned(const std::vector<ChartPoint>& points, std::size_t most);

}  // namespace lockstep::app
