/// \file
/// The canvas of charts: builds SVG text, and maps the numbers of an axis to pixels. Private to chart*.cpp.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/report/chart.hpp"

namespace lockstep::app {

/// Maps a range of numbers to a range of the picture's width or height.
class AxisMapping {
 public:
  /// The axis covers its ticks and all `values` that it can show. It extends from pixel `from` to pixel `to`.
  AxisMapping(const ChartAxis& axis, const std::vector<double>& values, double from, double to);
  bool shows(double value) const;
  double at(double value) const;
  /// "1 1000 98 700 logarithmic": the numbers at the ends, their pixels and the scale. Programs that read values from
  /// the picture use it.
  std::string described() const;
  const std::vector<double>& ticks() const noexcept { return ticks_; }

 private:
  double fraction(double value) const;

  AxisScale scale_;
  double low_ = 0, high_ = 1, from_, to_;
  std::vector<double> ticks_;
};

struct TextStyle {
  double size = 13;
  std::string_view anchor = "start";
  std::string_view fill = "#1f2933";
  bool bold = false;
  bool halo = false;    ///< with a white edge, so that it is readable on any background
  bool upward = false;  ///< rotated by a quarter turn
};

class ChartCanvas {
 public:
  ChartCanvas(const std::string& title, const std::string& subtitle, const std::string& description,
              const ChartFrame& frame = {});
  double width() const noexcept { return frame_.width; }
  double top() const noexcept { return top_of(frame_); }  ///< top of the plot
  double bottom() const noexcept { return bottom_of(frame_); }
  static double top_of(const ChartFrame& frame) noexcept { return frame.titled ? 78 : 14; }
  static double bottom_of(const ChartFrame& frame) noexcept { return frame.height - (frame.titled ? 66 : 54); }

  void raw(std::string_view element) { text_ += element; }
  /// Adds `<tag attributes>`, with a tooltip unless it is "".
  void shape(std::string_view tag, std::string_view attributes, const std::string& tooltip = "");
  void text(double x, double y, const std::string& words, const TextStyle& style = {});
  void line(double x1, double y1, double x2, double y2, std::string_view style);
  /// Draws the grid, its numbers and the title at the left.
  void y_axis(const ChartAxis& axis, const AxisMapping& mapping, double left, double right);
  void x_tick(double x, const std::string& label);
  void x_axis(const std::string& title, double left, double right);
  void no_data(double left, double right);
  std::string finish();

 private:
  ChartFrame frame_;
  std::string text_;
};

/// CSS rules for the colours of a chart on a dark background.
std::string dark_colours();

/// Estimates the width of drawn text, rather too large, because fonts differ.
double text_width(const std::string& text, double size);
/// Cuts text to a width, with an ellipsis.
std::string fit_text(const std::string& text, double size, double width);
/// Returns heights for labels. The ideal heights are `wanted`; they move as little as possible so that labels are
/// `distance` apart between top and bottom, or closer if there is not enough space.
std::vector<double> spread_labels(const std::vector<double>& wanted, double distance, double top, double bottom);

}  // namespace lockstep::app
