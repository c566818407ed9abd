/// \file
/// A progress bar as text; the console draws it.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::app {

/// One line of at most `columns` characters:
///   " 43 % [##########..............] 12,345 samples/s  1:20 left"
/// The bar takes the space that the text leaves and is dropped if that is under 8 characters; text that is still too
/// long is cut. seconds_left nullopt: not known yet, not shown.
std::string format_progress(double fraction, std::string_view text, std::optional<double> seconds_left, int columns);

/// Estimates the time left and decides when to redraw.
class ProgressBar {
 public:
  using Clock = std::chrono::steady_clock;

  /// The line to draw now, or nullopt if the last one is less than a tenth of a second old (the end is always drawn).
  /// The time left is extrapolated from the first fraction seen, so that a resumed run does not count old work.
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
