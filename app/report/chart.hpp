/// \file
/// Charts as SVG text: lines over a quantity, or stacked bars over categories. Pure functions return a complete file
/// that any browser or editor shows: no scripts, no external fonts or files, its own background (dark if the viewer
/// prefers that and supports CSS, otherwise white). Series differ by marker or pattern, not only by colour. Their names
/// stand beside the ends of the lines or the parts of the last bar, in the same order, and so serve as legend.
///
/// Numbers that cannot be drawn are left out: those that are not finite and, on a logarithmic axis, those that are not
/// greater than 0. They leave a gap in a line and count as 0 in a bar. A chart without data says so.
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
  std::string title{};  ///< title with the unit, unless the numbers have units: "bus bandwidth, GB/s"
  AxisScale scale = AxisScale::linear;
  AxisNumbers numbers = AxisNumbers::plain;
  bool from_zero = true;  ///< linear scale: the axis includes 0
  /// All ticks, for quantities with few values (1, 2, 4, 8 ranks); empty: round numbers.
  std::vector<double> ticks{};
};

struct ChartPoint {
  double x = 0, y = 0;
};

struct ChartSeries {
  std::string name{};
  /// Points in the order of the line. In stacked bars, x is the index of a bar, from 0; bars without a point and
  /// negative values count as 0.
  std::vector<ChartPoint> points{};
  bool reference = false;    ///< a bound or an ideal: dashed, grey, without markers
  std::size_t markers = 40;  ///< approximate limit: longer lines have fewer markers than points
};

/// An event on a line chart: a dashed line from top to bottom.
struct ChartMark {
  double x = 0;
  std::string name{};
};

/// The size of a chart, in pixels, and if it contains its title.
struct ChartFrame {
  double width = 880, height = 520;
  bool titled = true;  ///< false: the surrounding page shows the title
  /// True if the title of the y axis would take too much of the width; then the surrounding page shows it.
  bool narrow() const noexcept { return width < 400; }
};

struct Chart {
  std::string title{};
  std::string subtitle{};  ///< place, time and fixed quantities; "": none
  ChartAxis x{}, y{};
  std::vector<ChartSeries> series{};  ///< stacked bars: from bottom to top
  /// Names of the bars. The series are the parts of the bars, and the y axis is linear from 0. Empty: a line chart.
  std::vector<std::string> bars{};
  std::vector<ChartMark> marks{};
  ChartFrame frame{};
};

/// Returns the logarithmic scale if all y are greater than 0 and the greatest is more than 50 times the least;
/// otherwise the linear scale.
AxisScale scale_of_values(const std::vector<ChartSeries>& series);
/// Returns ticks at the points: every x, or every n-th x if there are more than `most`.
std::vector<double> ticks_at_points(const std::vector<ChartSeries>& series, std::size_t most = 8);

/// Returns a chart as an element of a page; the page's style adapts the colours to a dark background
/// (chart_canvas.hpp). A line chart contains an invisible rectangle over the plot, class "over", whose attributes
/// data-x and data-y describe the axes. `prefix` makes the ids unique in a page with several charts.
std::string draw(const Chart& chart, const std::string& prefix = "");
/// Returns one file with the charts below each other.
std::string to_svg(std::span<const Chart> charts);
std::string to_svg(const Chart& chart);
/// Returns one file with pictures of the default size below each other on white. draw() or a MatrixChart makes each
/// picture.
std::string stack_pictures(std::span<const std::string> pictures);

/// Escapes text for an SVG element or attribute. Characters that XML does not allow, and those that would reorder or
/// hide text, become visible as in io::visible_line().
std::string escape_xml(const std::string& text);

/// Formats `value` in the notation of an axis.
std::string format_axis_number(double value, AxisNumbers numbers);

/// Returns round numbers for an axis from `low` to `high` (low < high; logarithmic: 0 < low). The first is at or below
/// `low`, the last at or above `high`. Exception: for bytes on a logarithmic axis, only powers of two between `low` and
/// `high`.
std::vector<double> axis_ticks(double low, double high, AxisScale scale, AxisNumbers numbers);

}  // namespace lockstep::app
