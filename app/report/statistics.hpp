/// \file
/// Statistics of measured values.
#pragma once

#include <vector>

namespace lockstep::app {

/// Returns the median; for an even number of values, the upper of the middle two; 0 without values.
double median(std::vector<double> values);

struct Percentiles {
  double least = 0, median = 0, p95 = 0, p99 = 0, most = 0;
};
/// Percentiles by nearest rank: p95 is the smallest value that at least 95 % of `values` do not exceed. `values` must
/// not be empty.
Percentiles percentiles_of(std::vector<double> values);

}  // namespace lockstep::app
