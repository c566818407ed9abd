#include "app/figures.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace lockstep::app {

std::string with_commas(std::int64_t value) {
  std::string digits = fmt::format("{}", value);
  for (std::int64_t i = static_cast<std::int64_t>(digits.size()) - 3; i > (value < 0 ? 1 : 0); i -= 3) {
    digits.insert(static_cast<std::size_t>(i), ",");
  }
  return digits;
}

std::string counted(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", with_commas(count), noun, count == 1 ? "" : "s");
}

std::string format_bytes(double bytes) {
  constexpr std::array<const char*, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < units.size()) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} {}", bytes, units[unit]) : fmt::format("{:.1f} {}", bytes, units[unit]);
}

std::string format_flops(double flops) {
  constexpr std::array<const char*, 6> units{"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"};
  std::size_t unit = 0;
  while (flops >= 1000 && unit + 1 < units.size()) {
    flops /= 1000;
    ++unit;
  }
  return fmt::format("{:.3g} {}", flops, units[unit]);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  const auto whole = std::llround(seconds);
  return whole >= 3600 ? fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
                       : fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace lockstep::app
