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

std::string advise_one_rank(const TimeSplit& split, int world, std::int64_t steps) {
  constexpr std::int64_t kFewSteps = 20;
  constexpr double kClearly = 0.9;
  const double alone = world * (split.input + split.compute) + std::max(0.0, split.other());
  if (world < 2 || steps < kFewSteps || alone >= kClearly * split.total) return "";
  const auto milliseconds = [&](double seconds) {
    return fmt::format("{:.3g} ms", 1e3 * seconds / static_cast<double>(steps));
  };
  return fmt::format(
      "one rank would be faster: about {} for a step, in which it computes the parts of all {} ranks; these took {}, "
      "of "
      "which {} went into communication. A larger batch or network uses more ranks better",
      milliseconds(alone), world, milliseconds(split.total), milliseconds(split.communication));
}

std::string advise_precision(const TimeSplit& split, const std::string& faster) {
  constexpr double kLongSeconds = 60, kMost = 0.5;
  if (faster.empty() || split.total < kLongSeconds || split.compute < kMost * split.total) return "";
  return fmt::format("{}; {:.0f} % of the time in steps was computing", faster, 100 * split.compute / split.total);
}

}  // namespace lockstep::app
