#include "app/report/progress_bar.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "app/report/figures.hpp"

namespace lockstep::app {
namespace {

constexpr auto kRedrawInterval = std::chrono::milliseconds(100);
constexpr int kShortestBar = 8;
constexpr int kLongestBar = 40;
/// Extrapolations from a shorter time are not useful.
constexpr double kSecondsBeforeEstimate = 0.5;

}  // namespace

std::string format_progress(double fraction, std::string_view text, std::optional<double> seconds_left, int columns) {
  const double done = std::isfinite(fraction) ? std::clamp(fraction, 0.0, 1.0) : 0.0;
  const std::string percent = fmt::format("{:3} %", static_cast<int>(std::floor(done * 100)));
  std::string tail;
  if (!text.empty()) tail += fmt::format(" {}", text);
  if (seconds_left) tail += fmt::format("  {} left", format_duration(*seconds_left));

  const int free = columns - static_cast<int>(percent.size() + tail.size()) - 3;  // " [" and "]"
  std::string line = percent;
  if (free >= kShortestBar) {
    const int width = std::min(free, kLongestBar);
    const int filled = static_cast<int>(std::floor(done * width));
    line += fmt::format(" [{:#<{}}{:.<{}}]", "", filled, "", width - filled);
  }
  line += tail;
  if (static_cast<int>(line.size()) > columns) line.resize(static_cast<std::size_t>(std::max(columns, 0)));
  return line;
}

std::optional<std::string> ProgressBar::update(double fraction, std::string_view text, int columns,
                                               Clock::time_point now) {
  if (!start_) start_ = Start{now, fraction};
  if (drawn_ && now - *drawn_ < kRedrawInterval && fraction < 1) return std::nullopt;
  drawn_ = now;
  const double elapsed = std::chrono::duration<double>(now - start_->time).count();
  const double gained = fraction - start_->fraction;
  std::optional<double> left;
  if (gained > 0 && elapsed >= kSecondsBeforeEstimate) left = elapsed * (1 - fraction) / gained;
  return format_progress(fraction, text, left, columns);
}

void ProgressBar::reset() noexcept {
  start_.reset();
  drawn_.reset();
}

}  // namespace lockstep::app
