#include "app/report/step_figures.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep::app {

TimeSplit operator-(const TimeSplit& later, const TimeSplit& earlier) {
  return {.input = later.input - earlier.input,
          .compute = later.compute - earlier.compute,
          .communication = later.communication - earlier.communication,
          .total = later.total - earlier.total};
}

std::string format_split(const TimeSplit& split) {
  const double percent = split.total > 0 ? 100 / split.total : 0;
  return fmt::format("input {:.1f} %  compute {:.0f} %  communication {:.0f} %  other {:.0f} %", split.input * percent,
                     split.compute * percent, split.communication * percent, std::max(0.0, split.other()) * percent);
}

}  // namespace lockstep::app
