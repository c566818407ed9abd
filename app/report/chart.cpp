#include "app/report/chart.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "app/report/chart_canvas.hpp"

namespace lockstep::app {
namespace {

constexpr double kLegendStart = 12, kLegendEnd = 36, kLegendText = 42;  ///< distances from the right edge of the plot

/// Colours that people with any colour vision can distinguish, dark enough on white.
constexpr std::array<std::string_view, 6> kColours{"#0072b2", "#d55e00", "#007a5a", "#a3497f", "#b07c00", "#3b4252"};
constexpr std::string_view kReferenceColour = "#616e7c";

/// White hatchings over the colours of a bar's parts; "": none.
constexpr std::array<std::string_view, 6> kHatchings{"",
                                                     "M0,8 L8,0 M-2,2 L2,-2 M6,10 L10,6",
                                                     "M2,2 h2 v2 h-2 z M6,6 h2 v2 h-2 z",
                                                     "M0,0 L8,8 M-2,6 L2,10 M6,-2 L10,2",
                                                     "M0,4 H8",
                                                     "M4,0 V8 M0,4 H8"};

/// The corners of the marker of line `kind`, relative to its point; none: a circle. Lines after the sixth reuse the
/// colours with other markers.
const std::vector<ChartPoint>& marker_corners(std::size_t kind) {
  static const std::array<std::vector<ChartPoint>, 6> corners{{
      {},
      {{-3.7, -3.7}, {3.7, -3.7}, {3.7, 3.7}, {-3.7, 3.7}},
      {{0, -5}, {4.7, 3.6}, {-4.7, 3.6}},
      {{0, -5.4}, {5.4, 0}, {0, 5.4}, {-5.4, 0}},
      {{0, 5}, {4.7, -3.6}, {-4.7, -3.6}},
      {{-1.5, -5},
       {1.5, -5},
       {1.5, -1.5},
       {5, -1.5},
       {5, 1.5},
       {1.5, 1.5},
       {1.5, 5},
       {-1.5, 5},
       {-1.5, 1.5},
       {-5, 1.5},
       {-5, -1.5},
       {-1.5, -1.5}},
  }};
  return corners[(kind + kind / kColours.size()) % corners.size()];
}

/// Rounds to three digits, for which a bar has space.
double rounded(double value) {
  if (!(value > 0)) return 0;
  const double unit = std::pow(10, std::floor(std::log10(value)) - 2);
  return std::round(value / unit) * unit;
}

/// Width of the legend's text; 0: no legend, because the title describes the only line.
double legend_width(const Chart& chart) {
  if (chart.bars.empty() && chart.series.size() == 1 && chart.series[0].name.empty()) return 0;
  double widest = 40;
  for (const ChartSeries& series : chart.series) widest = std::max(widest, text_width(series.name, TextStyle{}.size));
  return std::min(widest, chart.frame.titled ? 240.0 : 0.24 * chart.frame.width);
}

/// The partial sums of a bar's parts, from 0 on: one more number than parts.
std::vector<double> stack(const Chart& chart, std::size_t bar) {
  std::vector<double> sums{0};
  for (const ChartSeries& part : chart.series) {
    sums.push_back(sums.back());
    for (const ChartPoint& point : part.points) {
      if (point.x == static_cast<double>(bar) && point.y > 0 && point.y < 1e250) sums.back() += point.y;
    }
  }
  return sums;
}

AxisMapping x_mapping(const Chart& chart, double left, double right) {
  std::vector<double> values;
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) values.push_back(point.x);
  }
  return {chart.x, values, left + 8, right - 8};
}

AxisMapping y_mapping(const Chart& chart) {
  ChartAxis axis = chart.y;
  std::vector<double> values;
  for (std::size_t bar = 0; bar < chart.bars.size(); ++bar) {
    axis.scale = AxisScale::linear;
    axis.from_zero = true;
    values.push_back(stack(chart, bar).back());
  }
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      if (chart.bars.empty()) values.push_back(point.y);
    }
  }
  return {axis, values, ChartCanvas::bottom_of(chart.frame), ChartCanvas::top_of(chart.frame)};
}

/// The left edge of the plot, which leaves space for the numbers and the title of the y axis.
double left_of(const Chart& chart, const AxisMapping& y) {
  double widest = chart.frame.titled ? 52 : 0;
  for (const double tick : y.ticks()) {
    widest = std::max(widest, text_width(format_axis_number(tick, chart.y.numbers), 12));
  }
  return (chart.frame.narrow() ? 20 : 46) + widest;
}

double right_of(const Chart& chart, double legend) {
  if (legend == 0) return chart.frame.width - 24;
  return chart.frame.width - legend - (chart.frame.titled ? 66 : 50) + (chart.frame.narrow() ? 6 : 0);
}

class Painter {
 public:
  Painter(const Chart& chart, const std::string& prefix)
      : chart_(chart),
        prefix_(prefix),
        legend_width_(legend_width(chart)),
        y_(y_mapping(chart)),
        left_(left_of(chart, y_)),
        right_(right_of(chart, legend_width_)),
        x_(x_mapping(chart, left_, right_)),
        canvas_(chart.title, chart.subtitle,
                fmt::format("{} {} {}{}", chart.y.title, chart.bars.empty() ? "over" : "by", chart.x.title,
                            chart.bars.empty() ? "" : ", in parts"),
                chart.frame) {}

  std::string draw() {
    canvas_.y_axis(chart_.y, y_, left_, right_);
    canvas_.x_axis(chart_.x.title, left_, right_);
    const std::vector<double> heights = chart_.bars.empty() ? draw_lines() : draw_bars();
    for (std::size_t i = 0; i < heights.size() && legend_width_ > 0; ++i) draw_legend(i, heights[i]);
    return canvas_.finish();
  }

 private:
  bool shows(const ChartPoint& point) const { return x_.shows(point.x) && y_.shows(point.y); }
  ChartPoint at(const ChartPoint& point) const { return {x_.at(point.x), y_.at(point.y)}; }

  /// The index of a series among those that are not references; it selects colour and marker.
  std::size_t kind_of(std::size_t index) const {
    const auto end = chart_.series.begin() + static_cast<std::ptrdiff_t>(index);
    return static_cast<std::size_t>(
        std::count_if(chart_.series.begin(), end, [](const ChartSeries& series) { return !series.reference; }));
  }
  std::string_view colour_of(std::size_t index) const {
    return chart_.series[index].reference ? kReferenceColour : kColours[kind_of(index) % kColours.size()];
  }
  std::string stroke(std::size_t index) const {
    return fmt::format("stroke=\"{}\" stroke-width=\"2\"{}", colour_of(index),
                       chart_.series[index].reference ? " stroke-dasharray=\"7 5\"" : "");
  }

  /// Draws the lines. Returns the heights of the series' names.
  std::vector<double> draw_lines() {
    double labelled_up_to = 0;
    for (const double tick : x_.ticks()) {
      const std::string label = format_axis_number(tick, chart_.x.numbers);
      const double half = text_width(label, 12) / 2, x = x_.at(tick);
      const bool fits = x - half >= labelled_up_to;  // leaves out numbers without space
      canvas_.x_tick(x, fits ? label : "");
      if (fits) labelled_up_to = x + half + 4;
    }
    std::vector<ChartPoint> ends;
    std::vector<double> wanted;
    bool any = false;
    for (const ChartSeries& series : chart_.series) {
      const auto last =
          std::find_if(series.points.rbegin(), series.points.rend(), [&](const ChartPoint& p) { return shows(p); });
      any = any || last != series.points.rend();
      ends.push_back(last == series.points.rend() ? ChartPoint{right_, canvas_.bottom()} : at(*last));
      wanted.push_back(ends.back().y);
    }
    if (!any) canvas_.no_data(left_, right_);
    const std::vector<double> heights = spread_labels(wanted, 20, canvas_.top() + 4, canvas_.bottom());
    for (std::size_t i = 0; i < ends.size() && legend_width_ > 0; ++i) {
      canvas_.line(ends[i].x, ends[i].y, right_ + kLegendStart - 2, heights[i], "stroke=\"#cbd2d9\"");
    }
    draw_marks();
    for (const bool reference : {true, false}) {
      for (std::size_t i = 0; i < ends.size(); ++i) {
        if (chart_.series[i].reference == reference) draw_line(i);
      }
    }
    if (!chart_.frame.titled) {
      canvas_.shape("rect", fmt::format("class=\"over\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
                                        "fill=\"none\" pointer-events=\"all\" data-x=\"{}\" data-y=\"{}\"",
                                        left_, canvas_.top(), right_ - left_, canvas_.bottom() - canvas_.top(),
                                        x_.described(), y_.described()));
    }
    return heights;
  }

  std::size_t length_of(const ChartSeries& series) const {
    return static_cast<std::size_t>(
        std::count_if(series.points.begin(), series.points.end(), [&](const ChartPoint& p) { return shows(p); }));
  }

  void draw_marks() {
    double named_up_to = left_;
    for (const ChartMark& mark : chart_.marks) {
      if (!x_.shows(mark.x)) continue;
      const double x = x_.at(mark.x);
      canvas_.line(x, canvas_.top(), x, canvas_.bottom(), "stroke=\"#616e7c\" stroke-dasharray=\"2 4\"");
      const double end = x + 4 + text_width(mark.name, 11);
      if (x < named_up_to || end > right_) continue;
      canvas_.text(x + 4, canvas_.top() + 10, mark.name, {.size = 11, .fill = "#52606d", .halo = true});
      named_up_to = end + 4;
    }
  }

  void draw_line(std::size_t index) {
    const ChartSeries& series = chart_.series[index];
    std::string corners;
    std::size_t length = 0;
    const auto end_line = [&] {
      if (length > 1) {
        canvas_.shape("polyline", fmt::format("points=\"{}\" fill=\"none\" {}", corners.substr(1), stroke(index)));
      }
      corners.clear();
      length = 0;
    };
    for (const ChartPoint& point : series.points) {
      if (shows(point)) {
        corners += fmt::format(" {:.1f},{:.1f}", x_.at(point.x), y_.at(point.y));
        ++length;
      } else {
        end_line();
      }
    }
    const bool alone = length == 1 && series.points.size() == 1;
    end_line();
    if (alone && series.reference) {  // a bound at a single point: a stroke through it
      const ChartPoint point = at(series.points[0]);
      canvas_.line(point.x - 30, point.y, point.x + 30, point.y, stroke(index));
    }
    if (series.reference) return;
    if (series.markers == 0 && length_of(series) > 1) return;
    const std::size_t step = series.points.size() / std::max<std::size_t>(series.markers, 1) + 1;
    for (std::size_t i = 0; i < series.points.size(); i += step) {
      const ChartPoint& point = series.points[i];
      if (!shows(point)) continue;
      draw_marker(index, at(point),
                  fmt::format("{}: {}, {}", series.name, format_axis_number(point.x, chart_.x.numbers),
                              format_axis_number(point.y, chart_.y.numbers)));
    }
  }

  void draw_marker(std::size_t index, const ChartPoint& centre, const std::string& tooltip) {
    const std::string fill = fmt::format("fill=\"{}\" stroke=\"#ffffff\"", colour_of(index));
    const std::vector<ChartPoint>& corners = marker_corners(kind_of(index));
    if (corners.empty()) {
      canvas_.shape("circle", fmt::format("cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" {}", centre.x, centre.y, fill), tooltip);
      return;
    }
    std::string points;
    for (const ChartPoint& corner : corners) {
      points += fmt::format(" {:.1f},{:.1f}", centre.x + corner.x, centre.y + corner.y);
    }
    canvas_.shape("polygon", fmt::format("points=\"{}\" {}", points.substr(1), fill), tooltip);
  }

  /// Draws the bars. Returns the heights of the parts' names.
  std::vector<double> draw_bars() {
    define_hatchings();
    const double stride = (right_ - left_) / static_cast<double>(chart_.bars.size());
    const double width = std::min(90.0, 0.7 * stride);
    std::vector<double> middles;
    double labelled_up_to = left_;
    for (std::size_t bar = 0; bar < chart_.bars.size(); ++bar) {
      const double centre = left_ + stride * (static_cast<double>(bar) + 0.5);
      const std::vector<double> sums = stack(chart_, bar);
      middles.clear();
      for (std::size_t i = 0; i < chart_.series.size(); ++i) {
        const double bottom = y_.at(sums[i]), top = y_.at(sums[i + 1]);
        middles.push_back((bottom + top) / 2);
        if (bottom - top < 0.3) continue;
        const std::string figure = format_axis_number(rounded(sums[i + 1] - sums[i]), chart_.y.numbers);
        draw_block(i, {centre - width / 2, top}, {width, bottom - top},
                   fmt::format("{}: {}, {}", chart_.bars[bar], chart_.series[i].name, figure));
        if (bottom - top >= 16 && text_width(figure, 12) <= width) {
          canvas_.text(centre, middles.back() + 4, figure, {.size = 12, .anchor = "middle", .halo = true});
        }
      }
      const std::string name = fit_text(chart_.bars[bar], 12, 3 * stride);
      const double half = text_width(name, 12) / 2;
      if (bar > 0 && centre - half < labelled_up_to) continue;  // leaves out names without space
      const double x = std::clamp(centre, half, canvas_.width() - half);
      canvas_.text(x, canvas_.bottom() + 20, name, {.size = 12, .anchor = "middle", .fill = "#52606d"});
      labelled_up_to = x + half + 4;
    }
    if (chart_.series.empty()) canvas_.no_data(left_, right_);
    std::vector<double> heights = spread_labels(middles, 22, canvas_.top() + 4, canvas_.bottom() - 4);
    // Tiny parts of the last bar have the same height: sorting keeps their names in the order of the stack.
    std::sort(heights.begin(), heights.end(), std::greater<>());
    return heights;
  }

  void define_hatchings() {
    std::string patterns;
    for (std::size_t kind = 1; kind < std::min(chart_.series.size(), kHatchings.size()); ++kind) {
      patterns += fmt::format(
          "<pattern id=\"{}hatching{}\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\">"
          "<path d=\"{}\" stroke=\"#ffffff\" stroke-opacity=\"0.75\" fill=\"none\"/></pattern>\n",
          prefix_, kind, kHatchings[kind]);
    }
    canvas_.raw("<defs>\n" + patterns + "</defs>\n");
  }

  void draw_block(std::size_t index, const ChartPoint& corner, const ChartPoint& size, const std::string& tooltip) {
    const std::string place =
        fmt::format("x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"", corner.x, corner.y, size.x, size.y);
    canvas_.shape("rect", fmt::format("{} fill=\"{}\" stroke=\"#ffffff\"", place, colour_of(index)), tooltip);
    const std::size_t kind = index % kHatchings.size();
    if (kHatchings[kind].empty()) return;
    canvas_.shape("rect", fmt::format("{} fill=\"url(#{}hatching{})\" pointer-events=\"none\"", place, prefix_, kind));
  }

  void draw_legend(std::size_t index, double height) {
    const std::string& name = chart_.series[index].name;
    if (!chart_.bars.empty()) {
      draw_block(index, {right_ + kLegendStart, height - 7}, {kLegendEnd - kLegendStart, 14}, name);
    } else {
      canvas_.line(right_ + kLegendStart, height, right_ + kLegendEnd, height, stroke(index));
      const ChartPoint middle{right_ + (kLegendStart + kLegendEnd) / 2, height};
      if (!chart_.series[index].reference) draw_marker(index, middle, "");
    }
    canvas_.text(right_ + kLegendText, height + 4.5, fit_text(name, TextStyle{}.size, legend_width_));
  }

  const Chart& chart_;
  const std::string& prefix_;
  double legend_width_;
  AxisMapping y_;
  double left_, right_;
  AxisMapping x_;
  ChartCanvas canvas_;
};

}  // namespace

AxisScale scale_of_values(const std::vector<ChartSeries>& series) {
  double least = HUGE_VAL, most = 0;
  for (const ChartSeries& each : series) {
    for (const ChartPoint& point : each.points) {
      least = std::min(least, point.y);
      most = std::max(most, point.y);
    }
  }
  return least > 0 && most > 50 * least ? AxisScale::logarithmic : AxisScale::linear;
}

std::vector<double> ticks_at_points(const std::vector<ChartSeries>& series, std::size_t most) {
  std::set<double> places;
  for (const ChartSeries& each : series) {
    for (const ChartPoint& point : each.points) places.insert(point.x);
  }
  const std::size_t step = (places.size() + most - 1) / most;
  std::vector<double> ticks;
  std::size_t number = 0;
  for (const double place : places) {
    if (number++ % step == 0) ticks.push_back(place);
  }
  return ticks;
}

std::string draw(const Chart& chart, const std::string& prefix) { return Painter(chart, prefix).draw(); }

std::string stack_pictures(std::span<const std::string> pictures) {
  constexpr std::string_view kOpen = "<svg ";
  constexpr ChartFrame kFrame;
  std::string text =
      fmt::format("{0}xmlns=\"http://www.w3.org/2000/svg\" width=\"{1}\" height=\"{2}\" viewBox=\"0 0 {1} {2}\">\n",
                  kOpen, kFrame.width, kFrame.height * static_cast<double>(pictures.size()));
  double y = 0;
  for (const std::string& picture : pictures) {  // each picture is an embedded SVG
    text += fmt::format("{}y=\"{}\" {}", kOpen, y, picture.substr(kOpen.size()));
    y += kFrame.height;
  }
  return text + "</svg>\n";
}

std::string to_svg(std::span<const Chart> charts) {
  std::vector<std::string> pictures;
  for (const Chart& chart : charts) pictures.push_back(draw(chart));
  std::string file = pictures.size() == 1 ? std::move(pictures[0]) : stack_pictures(pictures);
  file.insert(file.find('>') + 1,
              fmt::format("\n<style>@media (prefers-color-scheme: dark) {{\n{}}}</style>", dark_colours()));
  return file;
}

std::string to_svg(const Chart& chart) { return to_svg(std::span(&chart, 1)); }

}  // namespace lockstep::app
