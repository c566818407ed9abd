#include "app/report/figures.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "io/files/plural.hpp"

namespace lockstep::app {

namespace {

/// `value` in the largest unit that keeps it at 1 or more; each unit is `step` times the previous one.
template <std::size_t N>
std::pair<double, std::string_view> in_units(double value, double step, const std::array<std::string_view, N>& units) {
  std::size_t unit = 0;
  for (; value >= step && unit + 1 < N; ++unit) value /= step;
  return {value, units[unit]};
}

}  // namespace

std::string with_commas(std::int64_t value) {
  std::string digits = fmt::format("{}", value);
  for (std::int64_t i = static_cast<std::int64_t>(digits.size()) - 3; i > (value < 0 ? 1 : 0); i -= 3) {
    digits.insert(static_cast<std::size_t>(i), ",");
  }
  return digits;
}

std::string counted(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}", with_commas(count), io::plural_unless_one(count, noun));
}

double shown(double value) { return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value + 0.0; }

std::string format_bytes(double bytes) {
  const auto [value, unit] = in_units<5>(bytes, 1024, {"B", "KiB", "MiB", "GiB", "TiB"});
  return fmt::format("{:.{}f} {}", value, unit == "B" ? 0 : 1, unit);
}

std::string format_byte_rate(double bytes, double seconds) {
  return format_bytes(bytes / std::max(seconds, 1e-9)) + "/s";
}

std::string format_flops(double flops) {
  const auto [value, unit] = in_units<6>(flops, 1000, {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"});
  return fmt::format("{:.3g} {}", value, unit);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  const auto whole = std::llround(seconds);
  return whole >= 3600 ? fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
                       : fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace lockstep::app
