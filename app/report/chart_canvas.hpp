/// \file
/// What charts are drawn on: SVG text in the making, and the mapping from numbers on an axis to pixels. Private to
/// chart*.cpp.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/report/chart.hpp"

namespace lockstep::app {

/// A span of the picture's width or height, and the numbers that lie on it.
class AxisMapping {
 public:
  /// The axis reaches over all `values` that it can show and over its ticks; from pixel `from` to pixel `to`.
  AxisMapping(const ChartAxis& axis, const std::vector<double>& values, double from, double to);
  bool shows(double value) const;
  double at(double value) const;
  /// "1 1000 98 700 logarithmic": the numbers at the ends, their pixels and the scale, for a program that reads values
  /// off the picture.
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
  bool halo = false;    ///< edged in white, to be read on any ground
  bool upward = false;  ///< turned by a quarter
};

class ChartCanvas {
 public:
  ChartCanvas(const std::string& title, const std::string& subtitle, const std::string& description,
              const ChartFrame& frame = {});
  double width() const noexcept { return frame_.width; }
  double top() const noexcept { return top_of(frame_); }  ///< of the plot
  double bottom() const noexcept { return bottom_of(frame_); }
  static double top_of(const ChartFrame& frame) noexcept { return frame.titled ? 78 : 14; }
  static double bottom_of(const ChartFrame& frame) noexcept { return frame.height - (frame.titled ? 66 : 54); }

  void raw(std::string_view element) { text_ += element; }
  /// `<tag attributes>`; a tooltip is shown over it where there is one.
  void shape(std::string_view tag, std::string_view attributes, const std::string& tooltip = "");
  void text(double x, double y, const std::string& words, const TextStyle& style = {});
  void line(double x1, double y1, double x2, double y2, std::string_view style);
  /// The grid, its numbers and the title at the left.
  void y_axis(const ChartAxis& axis, const AxisMapping& mapping, double left, double right);
  void x_tick(double x, const std::string& label);
  void x_axis(const std::string& title, double left, double right);
  void no_data(double left, double right);
  std::string finish();

 private:
  ChartFrame frame_;
  std::string text_;
};

/// CSS: what the colours of a chart become on a dark ground.
std::string dark_colours();

/// About how wide text is drawn, rather too much: fonts differ.
double text_width(const std::string& text, double size);
/// Cut to a width, with an ellipsis.
std::string fit_text(const std::string& text, double size, double width);
/// Heights of labels that want to be at `wanted`, moved as little as keeps them `distance` apart between top and
/// bottom; closer where they would not fit otherwise.
std::vector<double> spread_labels(const std::vector<double>& wanted, double distance, double top, double bottom);

}  // namespace lockstep::app
