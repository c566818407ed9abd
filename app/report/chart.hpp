/// \file
/// Charts as SVG text: lines over a quantity, stacked bars over categories. Pure functions from data to a whole file
/// that any browser or editor shows: no scripts, no fonts or files from elsewhere, a ground of its own: dark where the
/// viewer prefers that and understands CSS, else white. Series differ by marker or pattern, not by colour alone. Their
/// names stand beside the lines' ends and the last bar's parts, in the same order: legend and direct label at once.
///
/// What cannot be drawn is left out: numbers that are not finite and, on a logarithmic axis, those that are not above 0
/// end a line, which goes on after them; in a bar they count as nothing. Charts without any data say so.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace lockstep::app {

enum class AxisScale { linear, logarithmic };

/// How the numbers along an axis are written.
enum class AxisNumbers {
  plain,    ///< 0.5, 20, 1,500
  bytes,    ///< 8 B, 256 KiB; ticks at powers of two where the scale is logarithmic
  seconds,  ///< 20 µs, 1.5 ms, 3 s
  percent,  ///< 80 %: the values are percent already
};

struct ChartAxis {
  std::string title{};  ///< with the unit where the numbers do not say it: "bus bandwidth, GB/s"
  AxisScale scale = AxisScale::linear;
  AxisNumbers numbers = AxisNumbers::plain;
  bool from_zero = true;  ///< linear: 0 is on the axis
  /// Exactly these, for quantities of few values (1, 2, 4, 8 ranks); empty: round numbers.
  std::vector<double> ticks{};
};

struct ChartPoint {
  double x = 0, y = 0;
};

struct ChartSeries {
  std::string name{};
  /// In the order in which the line joins them. In stacked bars, x is the number of a bar from 0; bars without a point
  /// and values below 0 count as 0.
  std::vector<ChartPoint> points{};
  bool reference = false;    ///< a bound, an ideal: dashed, grey, without markers
  std::size_t markers = 40;  ///< about so many at most: long lines are not beaded all along
};

/// An event on a chart of lines: a dashed stroke from top to bottom.
struct ChartMark {
  double x = 0;
  std::string name{};
};

/// The size of a picture, and whether its title stands in it.
struct ChartFrame {
  double width = 880, height = 520;
  bool titled = true;  ///< false: whoever shows the picture says what it is
  /// So narrow that the title of the y axis would take too much of it: whoever shows it says that, too.
  bool narrow() const noexcept { return width < 400; }
};

struct Chart {
  std::string title{};
  std::string subtitle{};  ///< "": none. Where and when, what is held fixed
  ChartAxis x{}, y{};
  std::vector<ChartSeries> series{};  ///< of stacked bars: from the bottom
  /// The bars' names: the series are their parts, and the y axis is linear from 0. Empty: lines.
  std::vector<std::string> bars{};
  std::vector<ChartMark> marks{};
  ChartFrame frame{};
};

/// The logarithmic one where all y are above 0 and span decades: the greatest is more than 50 times the least.
AxisScale scale_of_values(const std::vector<ChartSeries>& series);
/// Ticks that hit the points: their x, or every so many of them where there are more than `most`.
std::vector<double> ticks_at_points(const std::vector<ChartSeries>& series, std::size_t most = 8);

/// A chart as an element of a page, whose style says what becomes of its colours in the dark (chart_canvas.hpp). Lines
/// have an invisible rectangle over the plot, class "over", whose attributes data-x and data-y say how numbers lie on
/// it.
/// `prefix` of the ids in it, where a page holds several.
std::string draw(const Chart& chart, const std::string& prefix = "");
/// The charts below each other in one file.
std::string to_svg(std::span<const Chart> charts);
std::string to_svg(const Chart& chart);
/// Pictures of the default size, each drawn by draw() or made of a matrix, likewise, on white.
std::string stack_pictures(std::span<const std::string> pictures);

/// Text as it stands inside an SVG element or attribute. What XML cannot hold (control characters, broken UTF-8)
/// becomes a question mark.
std::string escape_xml(const std::string& text);

/// `value` as an axis writes it.
std::string format_axis_number(double value, AxisNumbers numbers);

/// Round numbers for an axis that shows `low` to `high` (low < high; logarithmic: 0 < low): from at or below the one to
/// at or above the other, but powers of two, of bytes on a logarithmic axis, lie between the two.
std::vector<double> axis_ticks(double low, double high, AxisScale scale, AxisNumbers numbers);

}  // namespace lockstep::app
