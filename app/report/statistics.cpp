#include "app/report/statistics.hpp"

#include <algorithm>

namespace lockstep::app {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Percentiles percentiles_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](std::size_t percent) { return values[(percent * values.size() + 99) / 100 - 1]; };
  return {.least = values.front(), .median = at(50), .p95 = at(95), .p99 = at(99), .most = values.back()};
}

}  // namespace lockstep::app
