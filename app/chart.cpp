#include "app/chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <string_view>

#include "app/chart_canvas.hpp"

namespace lockstep::app {
namespace {

constexpr double kTop = ChartCanvas::kTop, kBottom = ChartCanvas::kBottom;
constexpr double kLabelSize = 13;

/// Told apart by people of any colour vision, and dark enough on white.
constexpr std::array<std::string_view, 6> kColours{"#0072b2", "#d55e00", "#007a5a", "#a3497f", "#b07c00", "#3b4252"};
constexpr std::string_view kReferenceColour = "#616e7c";

/// The shape of the `kind`-th line, about (x, y). Lines beyond the sixth have the colours again, with other shapes.
std::string marker(std::size_t kind, double x, double y, std::string_view colour, const std::string& tooltip) {
  const auto polygon = [&](const std::vector<ChartPoint>& corners) {
    std::string points;
    for (const ChartPoint& corner : corners) points += fmt::format("{:.1f},{:.1f} ", x + corner.x, y + corner.y);
    points.pop_back();
    return fmt::format("<polygon points=\"{}\"", points);
  };
  std::string shape;
  switch ((kind + kind / kColours.size()) % 6) {
    case 0:
      shape = fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"", x, y);
      break;
    case 1:
      shape = polygon({{-3.7, -3.7}, {3.7, -3.7}, {3.7, 3.7}, {-3.7, 3.7}});
      break;
    case 2:
      shape = polygon({{0, -5}, {4.7, 3.6}, {-4.7, 3.6}});
      break;
    case 3:
      shape = polygon({{0, -5.4}, {5.4, 0}, {0, 5.4}, {-5.4, 0}});
      break;
    case 4:
      shape = polygon({{0, 5}, {4.7, -3.6}, {-4.7, -3.6}});
      break;
    default:
      shape = polygon({{-1.5, -5},
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
                       {-1.5, -1.5}});
  }
  shape += fmt::format(" fill=\"{}\" stroke=\"#ffffff\"", colour);
  return shape + (tooltip.empty() ? "/>\n"
                                  : fmt::format("><title>{}</title></{}>\n", escape_xml(tooltip),
                                                shape.starts_with("<circle") ? "circle" : "polygon"));
}

std::string stroke(const ChartSeries& series, std::string_view colour) {
  return fmt::format("stroke=\"{}\" stroke-width=\"2\"{}", colour, series.reference ? " stroke-dasharray=\"7 5\"" : "");
}

/// Room at the right for names of this length.
double label_room(const std::vector<std::string>& names) {
  double widest = 40;
  for (const std::string& name : names) widest = std::max(widest, text_width(name, kLabelSize));
  return std::min(widest, 240.0);
}

class LinePlot {
 public:
  explicit LinePlot(const LineChart& chart)
      : chart_(chart),
        room_(label_room(names(chart))),
        right_(ChartCanvas::kWidth - 66 - room_),
        x_(chart.x, numbers(chart, &ChartPoint::x), kLeft + 8, right_ - 8),
        y_(chart.y, numbers(chart, &ChartPoint::y), kBottom, kTop) {}

  std::string draw() {
    ChartCanvas canvas(chart_.title, chart_.subtitle, fmt::format("{} over {}", chart_.y.title, chart_.x.title));
    canvas.y_axis(chart_.y, y_, kLeft, right_);
    for (const double tick : x_.ticks()) canvas.x_tick(x_.at(tick), format_axis_number(tick, chart_.x.numbers));
    canvas.x_axis(chart_.x.title, kLeft, right_);
    std::vector<ChartPoint> ends;
    std::vector<double> wanted;
    bool any = false;
    for (std::size_t i = 0; i < chart_.series.size(); ++i) {
      const std::optional<ChartPoint> end = last_point(chart_.series[i]);
      any = any || end.has_value();
      ends.push_back(end.value_or(ChartPoint{right_, kBottom}));
      wanted.push_back(ends.back().y);
    }
    if (!any) canvas.no_data(kLeft, right_);
    const std::vector<double> heights = spread_labels(wanted, 20, kTop + 4, kBottom);
    for (std::size_t i = 0; i < ends.size(); ++i) {
      canvas.line(ends[i].x, ends[i].y, right_ + 10, heights[i], "stroke=\"#cbd2d9\"");
    }
    for (const bool reference : {true, false}) {
      std::size_t kind = 0;
      for (std::size_t i = 0; i < chart_.series.size(); ++i) {
        const ChartSeries& series = chart_.series[i];
        if (series.reference == reference) draw_series(canvas, series, kind, heights[i]);
        if (!series.reference) ++kind;
      }
    }
    return canvas.finish();
  }

 private:
  static constexpr double kLeft = 98;

  static std::vector<std::string> names(const LineChart& chart) {
    std::vector<std::string> result;
    for (const ChartSeries& series : chart.series) result.push_back(series.name);
    return result;
  }
  static std::vector<double> numbers(const LineChart& chart, double ChartPoint::*coordinate) {
    std::vector<double> result;
    for (const ChartSeries& series : chart.series) {
      for (const ChartPoint& point : series.points) result.push_back(point.*coordinate);
    }
    return result;
  }
  bool shows(const ChartPoint& point) const { return x_.shows(point.x) && y_.shows(point.y); }
  std::optional<ChartPoint> last_point(const ChartSeries& series) const {
    for (auto point = series.points.rbegin(); point != series.points.rend(); ++point) {
      if (shows(*point)) return ChartPoint{x_.at(point->x), y_.at(point->y)};
    }
    return std::nullopt;
  }

  void draw_series(ChartCanvas& canvas, const ChartSeries& series, std::size_t kind, double label) const {
    const std::string_view colour = series.reference ? kReferenceColour : kColours[kind % kColours.size()];
    std::string line;
    std::size_t length = 0;
    const auto end_line = [&] {
      if (length > 1) {
        canvas.raw(fmt::format("<polyline points=\"{}\" fill=\"none\" {}/>\n", line.substr(1), stroke(series, colour)));
      }
      line.clear();
      length = 0;
    };
    for (const ChartPoint& point : series.points) {
      if (!shows(point)) {
        end_line();
        continue;
      }
      line += fmt::format(" {:.1f},{:.1f}", x_.at(point.x), y_.at(point.y));
      ++length;
    }
    const bool alone = length == 1 && series.points.size() == 1;
    end_line();
    if (alone && series.reference) {  // a bound for one size: a stroke through it
      const double x = x_.at(series.points[0].x), y = y_.at(series.points[0].y);
      canvas.line(x - 30, y, x + 30, y, stroke(series, colour));
    }
    if (!series.reference) draw_markers(canvas, series, kind, colour);

    canvas.line(right_ + 12, label, right_ + 36, label, stroke(series, colour));
    if (!series.reference) canvas.raw(marker(kind, right_ + 24, label, colour, ""));
    canvas.text(right_ + 42, label + 4.5, fit_text(series.name, kLabelSize, room_), {.size = kLabelSize});
  }

  void draw_markers(ChartCanvas& canvas, const ChartSeries& series, std::size_t kind, std::string_view colour) const {
    const std::size_t step = series.points.size() / 40 + 1;  // long lines are not beaded all along
    for (std::size_t i = 0; i < series.points.size(); i += step) {
      const ChartPoint& point = series.points[i];
      if (!shows(point)) continue;
      canvas.raw(marker(kind, x_.at(point.x), y_.at(point.y), colour,
                        fmt::format("{}: {}, {}", series.name, format_axis_number(point.x, chart_.x.numbers),
                                    format_axis_number(point.y, chart_.y.numbers))));
    }
  }

  const LineChart& chart_;
  double room_, right_;
  AxisPlace x_, y_;
};

// Bars ----------------------------------------------------------------------------------------------------------------

/// White strokes over the colour of the `kind`-th part; "": none.
std::string_view hatching(std::size_t kind) {
  constexpr std::array<std::string_view, 6> strokes{"",
                                                    "M0,8 L8,0 M-2,2 L2,-2 M6,10 L10,6",
                                                    "M2,2 h2 v2 h-2 z M6,6 h2 v2 h-2 z",
                                                    "M0,0 L8,8 M-2,6 L2,10 M6,-2 L10,2",
                                                    "M0,4 H8",
                                                    "M4,0 V8 M0,4 H8"};
  return strokes[kind % strokes.size()];
}

/// To three digits: all that a block has room for.
double rounded(double value) {
  if (!(value > 0)) return 0;
  const double unit = std::pow(10, std::floor(std::log10(value)) - 2);
  return std::round(value / unit) * unit;
}

double part_value(const ChartPart& part, std::size_t bar) {
  const double value = bar < part.values.size() ? part.values[bar] : 0;
  return value > 0 && value < 1e250 ? value : 0;
}

}  // namespace

std::string to_svg(const LineChart& chart) { return LinePlot(chart).draw(); }

std::string to_svg(const StackedBarChart& chart) {
  constexpr double left = 98;
  std::vector<std::string> names;
  for (const ChartPart& part : chart.parts) names.push_back(part.name);
  const double room = label_room(names), right = ChartCanvas::kWidth - 60 - room;
  std::vector<double> totals(chart.bars.size(), 0.0);
  for (std::size_t bar = 0; bar < totals.size(); ++bar) {
    for (const ChartPart& part : chart.parts) totals[bar] += part_value(part, bar);
  }
  ChartAxis axis = chart.y;
  axis.scale = AxisScale::linear;
  axis.from_zero = true;
  const AxisPlace place(axis, totals, kBottom, kTop);

  ChartCanvas canvas(chart.title, chart.subtitle, fmt::format("{} by {}, in parts", axis.title, chart.x_title));
  canvas.raw("<defs>\n");
  for (std::size_t kind = 0; kind < std::min<std::size_t>(chart.parts.size(), 6); ++kind) {
    if (hatching(kind).empty()) continue;
    canvas.raw(
        fmt::format("<pattern id=\"hatching{}\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\">"
                    "<path d=\"{}\" stroke=\"#ffffff\" stroke-opacity=\"0.75\" fill=\"none\"/></pattern>\n",
                    kind, hatching(kind)));
  }
  canvas.raw("</defs>\n");
  const auto block = [&](std::size_t part, double x, double y, double width, double height,
                         const std::string& tooltip) {
    const std::string shape =
        fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"", x, y, width, height);
    canvas.raw(fmt::format("{} fill=\"{}\" stroke=\"#ffffff\"><title>{}</title></rect>\n", shape,
                           kColours[part % kColours.size()], escape_xml(tooltip)));
    if (!hatching(part).empty()) {
      canvas.raw(fmt::format("{} fill=\"url(#hatching{})\" pointer-events=\"none\"/>\n", shape, part % 6));
    }
  };

  canvas.y_axis(axis, place, left, right);
  canvas.x_axis(chart.x_title, left, right);
  const double stride = (right - left) / std::max(1.0, static_cast<double>(chart.bars.size()));
  const double width = std::min(90.0, 0.7 * stride);
  std::vector<double> wanted(chart.parts.size(), kBottom);  // the legend follows the last bar
  double labelled_up_to = left;
  for (std::size_t bar = 0; bar < chart.bars.size(); ++bar) {
    const double centre = left + stride * (static_cast<double>(bar) + 0.5);
    double sum = 0;
    for (std::size_t i = 0; i < chart.parts.size(); ++i) {
      const double value = part_value(chart.parts[i], bar), bottom = place.at(sum), top = place.at(sum + value);
      sum += value;
      wanted[i] = (bottom + top) / 2;
      if (bottom - top < 0.3) continue;
      const std::string figure = format_axis_number(rounded(value), axis.numbers);
      block(i, centre - width / 2, top, width, bottom - top,
            fmt::format("{}: {}, {}", chart.bars[bar], chart.parts[i].name, figure));
      if (bottom - top >= 16 && text_width(figure, 12) <= width) {
        canvas.text(centre, (bottom + top) / 2 + 4, figure, {.size = 12, .anchor = "middle", .halo = true});
      }
    }
    const std::string name = fit_text(chart.bars[bar], 12, 3 * stride);
    const double half = text_width(name, 12) / 2;
    if (bar == 0 || centre - half >= labelled_up_to) {  // as many names as there is room for
      const double x = std::clamp(centre, half, ChartCanvas::kWidth - half);
      canvas.text(x, kBottom + 20, name, {.size = 12, .anchor = "middle", .fill = "#52606d"});
      labelled_up_to = x + half + 4;
    }
  }
  if (chart.bars.empty() || chart.parts.empty()) canvas.no_data(left, right);
  std::vector<double> heights = spread_labels(wanted, 22, kTop + 4, kBottom - 4);
  // Parts that are as good as nothing in the last bar share its height: their order is the stack's all the same.
  std::sort(heights.begin(), heights.end(), std::greater<>());
  for (std::size_t i = 0; i < chart.parts.size(); ++i) {
    block(i, right + 14, heights[i] - 7, 18, 14, chart.parts[i].name);
    canvas.text(right + 38, heights[i] + 4.5, fit_text(chart.parts[i].name, kLabelSize, room), {.size = kLabelSize});
  }
  return canvas.finish();
}

}  // namespace lockstep::app
