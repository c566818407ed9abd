/// \file
/// A progress bar as text; the console draws it.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::app {

/// Returns one line of at most `columns` characters:
///   " 43 % [##########..............] 12,345 samples/s  1:20 left"
/// The bar takes the space that the text leaves; it is left out if that is less than 8 characters. Text that is still
/// too long is cut. seconds_left nullopt: not known yet, and not shown.
std::string format_progress(double fraction, std::string_view text, std::optional<double> seconds_left, int columns);

/// Estimates the time left and decides when to redraw.
class ProgressBar {
 public:
  using Clock = std::chrono::steady_clock;

  /// Returns the line to draw, or nullopt if the last line is less than a tenth of a second old (the end is always
  /// drawn). The time left is extrapolated from the first fraction seen, so that earlier work of a resumed run does not
  /// count.
  std::optional<std::string> update(double fraction, std::string_view text, int columns, Clock::time_point now);
  /// The next update starts a new bar.
  void reset() noexcept;

 private:
  struct Start {
    Clock::time_point time;
    double fraction;
  };
  std::optional<Start> start_;
  std::optional<Clock::time_point> drawn_;
};

}  // namespace lockstep::app
