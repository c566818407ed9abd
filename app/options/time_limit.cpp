#include "app/options/time_limit.hpp"

#include <charconv>

namespace lockstep::app {

namespace {

constexpr double kMinute = 60, kHour = 3600, kDay = 86400;

}  // namespace

std::optional<std::int64_t> parse_digits(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || text[0] == '-' || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_time_limit(std::string_view text) {
  double seconds = 0;
  if (const std::size_t dash = text.find('-'); dash != std::string_view::npos) {
    const auto days = parse_digits(text.substr(0, dash));
    if (!days || text.find(':') == std::string_view::npos) return std::nullopt;
    seconds += static_cast<double>(*days) * kDay;
    text.remove_prefix(dash + 1);
  }
  if (text.find(':') == std::string_view::npos) {
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    seconds += number;
  } else {
    double unit = kHour;
    for (std::string_view rest = text; unit > 0; unit = unit == kHour ? kMinute : unit == kMinute ? 1 : 0) {
      const std::size_t colon = rest.find(':');
      const auto number = parse_digits(rest.substr(0, colon));
      if (!number || (unit < kHour && *number >= kMinute)) return std::nullopt;
      seconds += static_cast<double>(*number) * unit;
      if (colon == std::string_view::npos) break;
      if (unit == 1) return std::nullopt;
      rest.remove_prefix(colon + 1);
    }
  }
  return seconds > 0 && seconds < 1e12 ? std::optional(seconds) : std::nullopt;
}

}  // namespace lockstep::app
