/// \file
/// Charts as SVG text: lines over a quantity, stacked bars over categories. Pure functions from data to a complete file
/// that any browser or editor shows: no scripts, no external fonts or files, a background of its own (dark if the
/// viewer prefers that and supports CSS, else white). Series differ by marker or pattern, not by colour alone. Their
/// names stand beside the lines' ends and the last bar's parts, in the same order: legend and direct label at once.
///
/// Numbers that cannot be drawn are left out: those that are not finite and, on a logarithmic axis, those that are not
/// above 0. In a line they leave a gap; in a bar they count as 0. Charts without any data say so.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace lockstep::app {

enum class AxisScale { linear, logarithmic };

/// Notation of the numbers along an axis.
enum class AxisNumbers {
  plain,    ///< 0.5, 20, 1,500
  bytes,    ///< 8 B, 256 KiB; ticks at powers of two on a logarithmic scale
  seconds,  ///< 20 µs, 1.5 ms, 3 s
  percent,  ///< 80 %: the values are already percentages
};

struct ChartAxis {
  std::string title{};  ///< title with the unit, unless the numbers show it: "bus bandwidth, GB/s"
  AxisScale scale = AxisScale::linear;
  AxisNumbers numbers = AxisNumbers::plain;
  bool from_zero = true;  ///< linear: 0 is on the axis
  /// All ticks, for quantities of few values (1, 2, 4, 8 ranks); empty: round numbers.
  std::vector<double> ticks{};
};

struct ChartPoint {
  double x = 0, y = 0;
};

struct ChartSeries {
  std::string name{};
  /// Points in the order of the line. In stacked bars, x is the number of a bar from 0; bars without a point and values
  /// below 0 count as 0.
  std::vector<ChartPoint> points{};
  bool reference = false;    ///< a bound, an ideal: dashed, grey, without markers
  std::size_t markers = 40;  ///< approximate limit: longer lines have fewer markers than points
};

/// An event on a chart of lines: a dashed stroke from top to bottom.
struct ChartMark {
  double x = 0;
  std::string name{};
};

/// The size of a picture, and whether it contains its title.
struct ChartFrame {
  double width = 880, height = 520;
  bool titled = true;  ///< false: the surrounding page shows the title
  /// True if the title of the y axis would take too much of the width: the surrounding page then shows it, too.
  bool narrow() const noexcept { return width < 400; }
};

struct Chart {
  std::string title{};
  std::string subtitle{};  ///< "": none. Place, time and fixed quantities
  ChartAxis x{}, y{};
  std::vector<ChartSeries> series{};  ///< stacked bars: from the bottom
  /// The bars' names: the series are their parts, and the y axis is linear from 0. Empty: lines.
  std::vector<std::string> bars{};
  std::vector<ChartMark> marks{};
  ChartFrame frame{};
};

/// The logarithmic scale if all y are above 0 and span decades: the greatest is more than 50 times the least.
AxisScale scale_of_values(const std::vector<ChartSeries>& series);
/// Ticks at the points: each x, or every n-th of them if there are more than `most`.
std::vector<double> ticks_at_points(const std::vector<ChartSeries>& series, std::size_t most = 8);

/// A chart as an element of a page, whose style adapts the colours to a dark background (chart_canvas.hpp). Line charts
/// have an invisible rectangle over the plot, class "over", whose attributes data-x and data-y describe the axes.
/// `prefix` makes the ids unique in a page with several charts.
std::string draw(const Chart& chart, const std::string& prefix = "");
/// The charts below each other in one file.
std::string to_svg(std::span<const Chart> charts);
std::string to_svg(const Chart& chart);
/// Pictures of the default size below each other on white, each made by draw() or from a matrix.
std::string stack_pictures(std::span<const std::string> pictures);

/// Text as it stands inside an SVG element or attribute. What XML cannot hold, and what would turn or hide text,
/// becomes visible as io::visible_line() has it.
std::string escape_xml(const std::string& text);

/// `value` in an axis's notation.
std::string format_axis_number(double value, AxisNumbers numbers);

/// Round numbers for an axis that shows `low` to `high` (low < high; logarithmic: 0 < low). They range from at or below
/// `low` to at or above `high`; only powers of two, for bytes on a logarithmic axis, lie between the two.
std::vector<double> axis_ticks(double low, double high, AxisScale scale, AxisNumbers numbers);

}  // namespace lockstep::app
