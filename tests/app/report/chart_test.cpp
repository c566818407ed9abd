#include "app/report/chart.hpp"

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/report/chart_canvas.hpp"
#include "app/report/chart_matrix.hpp"

namespace lockstep::app {
namespace {

using testing::DoubleEq;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// The first fault of the text as XML, as far as these charts use it; "" without one: tags match, attributes are quoted
/// and named once, '<', '>' and '&' are escaped.
std::string xml_fault(const std::string& text) {
  std::vector<std::string> open;
  const auto bad_text = [](const std::string& words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (static_cast<unsigned char>(words[i]) < 0x20 && words[i] != '\n') return true;
      if (words[i] == '>' || words[i] == '<') return true;
      if (words[i] != '&') continue;
      const std::string entity = words.substr(i, words.find(';', i) - i + 1);
      if (!std::set<std::string>{"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"}.contains(entity)) return true;
    }
    return false;
  };
  std::size_t at = 0;
  int roots = 0;
  while (at < text.size()) {
    const std::size_t tag = text.find('<', at);
    const std::string words = text.substr(at, tag == std::string::npos ? tag : tag - at);
    if (bad_text(words)) return "text: " + words;
    if (tag == std::string::npos) break;
    const std::size_t end = text.find('>', tag);
    if (end == std::string::npos) return "a tag without an end";
    std::string inside = text.substr(tag + 1, end - tag - 1);
    at = end + 1;
    if (inside.starts_with('/')) {
      if (open.empty() || open.back() != inside.substr(1)) return "</" + inside.substr(1) + "> ends what is not open";
      open.pop_back();
      continue;
    }
    const bool empty_element = inside.ends_with('/');
    if (empty_element) inside.pop_back();
    std::size_t i = 0;
    while (i < inside.size() && std::isspace(static_cast<unsigned char>(inside[i])) == 0) ++i;
    const std::string name = inside.substr(0, i);
    std::set<std::string> attributes;
    while ((i = inside.find_first_not_of(' ', i)) != std::string::npos) {
      const std::size_t equals = inside.find("=\"", i), close = inside.find('"', equals + 2);
      if (equals == std::string::npos || close == std::string::npos) return "attributes: " + inside;
      if (!attributes.insert(inside.substr(i, equals - i)).second) return "an attribute twice: " + inside;
      if (bad_text(inside.substr(equals + 2, close - equals - 2))) return "attribute: " + inside;
      i = close + 1;
    }
    if (open.empty()) ++roots;
    if (!empty_element) open.push_back(name);
  }
  if (!open.empty()) return "<" + open.back() + "> without an end";
  return roots == 1 ? "" : "not one root";
}

/// The numbers of an attribute, wherever it occurs.
std::vector<double> numbers_of(const std::string& svg, const std::string& attribute) {
  std::vector<double> result;
  const std::string key = " " + attribute + "=\"";
  for (std::size_t at = svg.find(key); at != std::string::npos; at = svg.find(key, at + 1)) {
    const char* next = svg.c_str() + at + key.size();
    while (*next != '"') {
      char* end = nullptr;
      result.push_back(std::strtod(next, &end));
      if (end == next) {
        ADD_FAILURE() << "no number: " << std::string(next).substr(0, 20);
        return result;
      }
      next = end;
      while (*next == ',' || *next == ' ') ++next;
    }
  }
  return result;
}

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

void expect_sound(const std::string& svg) {
  EXPECT_EQ(xml_fault(svg), "") << svg;
  EXPECT_THAT(svg, HasSubstr("viewBox=\"0 0 880 520\""));
  EXPECT_THAT(
      svg,
      HasSubstr("<rect x=\"0\" y=\"0\" width=\"880\" height=\"520\" fill=\"#ffffff\"/>"));  // a background of its own
  for (const char* part : {"nan", "inf", "<script", "href", "@import", "url(http"})
    EXPECT_THAT(svg, Not(HasSubstr(part)));
  for (const char* across : {"x", "x1", "x2", "cx", "width"}) {
    for (const double x : numbers_of(svg, across)) EXPECT_TRUE(x >= 0 && x <= 880) << across << "=" << x;
  }
  for (const char* down : {"y", "y1", "y2", "cy", "height"}) {
    for (const double y : numbers_of(svg, down)) EXPECT_TRUE(y >= 0 && y <= 520) << down << "=" << y;
  }
  const std::vector<double> points = numbers_of(svg, "points");
  ASSERT_EQ(points.size() % 2, 0u);
  for (std::size_t i = 0; i < points.size(); ++i) {
    EXPECT_TRUE(points[i] >= 0 && points[i] <= (i % 2 == 0 ? 880 : 520)) << points[i];
  }
}

Chart bandwidths() {
  Chart chart{.title = "Sums over 8 ranks",
              .subtitle = "two hosts",
              .x = {.title = "size", .scale = AxisScale::logarithmic, .numbers = AxisNumbers::bytes},
              .y = {.title = "bus bandwidth, GB/s"}};
  for (const char* name : {"ring", "two-level", "MPI_Allreduce"}) {
    ChartSeries series{.name = name};
    for (double bytes = 8; bytes <= 256 << 20; bytes *= 4) {
      series.points.push_back({bytes, bytes / (bytes + 1e5 * static_cast<double>(series.name.size()))});
    }
    chart.series.push_back(series);
  }
  chart.series.push_back({.name = "bound of the links", .points = {{8, 1.2}, {256 << 20, 1.2}}, .reference = true});
  return chart;
}

TEST(XmlFault, Fires) {
  EXPECT_EQ(xml_fault("<a b=\"1\"><c/>x &amp; y</a>\n"), "");
  for (const char* broken : {"<a>", "<a></b>", "</a>", "<a>x & y</a>", "<a b=1/>", "<a b=\"1\" b=\"2\"/>", "<a/><b/>",
                             "<a b=\"<\"/>", "<a>\x01</a>", "", "<a"}) {
    EXPECT_NE(xml_fault(broken), "") << broken;
  }
}

TEST(LineCharts, ShowEverySeriesAndLabel) {
  const std::string svg = to_svg(bandwidths());
  expect_sound(svg);
  for (const char* text :
       {">Sums over 8 ranks</text>", ">two hosts</text>", ">size</text>", ">bus bandwidth, GB/s</text>", ">ring</text>",
        ">two-level</text>", ">MPI_Allreduce</text>", ">bound of the links</text>", ">8 B</text>", ">128 MiB</text>",
        ">0</text>", ">1.2</text>"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
  EXPECT_EQ(occurrences(svg, "<polyline"), 4u);
  EXPECT_EQ(occurrences(svg, "stroke-dasharray"), 2u);  // only the bound and its sign in the legend
  EXPECT_THAT(svg, HasSubstr("<title>two-level: 512 B, "));
}

TEST(LineCharts, LinesDifferWithoutColour) {
  Chart chart = bandwidths();
  for (int i = 0; i < 9; ++i) chart.series.push_back({.name = "n", .points = {{100, 0.5 + 0.01 * i}, {200, 0.6}}});
  const std::string svg = to_svg(chart);
  expect_sound(svg);
  // The legend's markers, combined with their colours, are all different.
  std::set<std::string> signs;
  for (std::size_t at = svg.find("\"/>\n<text x=\""); at != std::string::npos;
       at = svg.find("\"/>\n<text x=\"", at + 1)) {
    const std::size_t start = svg.rfind('<', at);
    const std::string element = svg.substr(start, at - start);
    if (!element.starts_with("<circle") && !element.starts_with("<polygon")) continue;
    signs.insert(std::to_string(occurrences(element, ",")) + element.substr(element.find("fill=")) +
                 (element.starts_with("<circle") ? "circle" : ""));
  }
  EXPECT_EQ(signs.size(), 12u);
}

TEST(LineCharts, PlaceNumbersWhereTheAxesSay) {
  Chart chart{.title = "t", .x = {.scale = AxisScale::logarithmic}, .y = {.scale = AxisScale::linear}};
  chart.x.ticks = {1, 2, 4, 8, 16};
  chart.series = {{.name = "s", .points = {{1, 0}, {4, 50}, {16, 100}}}};
  const std::string svg = to_svg(chart);
  expect_sound(svg);
  const std::size_t line = svg.find("<polyline points=\"");
  ASSERT_NE(line, std::string::npos);
  const std::vector<double> points = numbers_of(svg.substr(line, svg.find("/>", line) - line), "points");
  ASSERT_EQ(points.size(), 6u);
  EXPECT_NEAR(points[2], (points[0] + points[4]) / 2, 0.11);  // the middle of the decades is the middle of the heights
  EXPECT_NEAR(points[3], (points[1] + points[5]) / 2, 0.11);
  EXPECT_GT(points[1], points[5]);
  EXPECT_EQ(occurrences(svg, ">16</text>"), 1u);
}

TEST(LineCharts, TakeWhateverComes) {
  expect_sound(to_svg(Chart{}));
  EXPECT_THAT(to_svg(Chart{}), HasSubstr("no data"));
  for (const AxisScale scale : {AxisScale::linear, AxisScale::logarithmic}) {
    for (const bool from_zero : {true, false}) {
      const ChartAxis axis{.title = "a", .scale = scale, .from_zero = from_zero};
      for (const std::vector<ChartPoint>& points : {std::vector<ChartPoint>{},
                                                    {{3, 7}},
                                                    {{0, 0}},
                                                    {{-1, -2}},
                                                    {{5, 5}, {5, 5}},
                                                    {{1, 2}, {NAN, 3}, {4, INFINITY}},
                                                    {{1e-300, 1e300}, {1e300, 1e-300}},
                                                    {{1, 1 + 1e-15}, {1, 1}},
                                                    {{-1e9, 1e9}, {1e9, -1e9}},
                                                    {{1e-320, 0}}}) {
        for (const bool reference : {true, false}) {
          const std::string svg =
              to_svg(Chart{.title = "t", .x = axis, .y = axis, .series = {{"s", points, reference}, {"u", {}}}});
          expect_sound(svg);
          EXPECT_THAT(svg, HasSubstr(">s</text>"));
        }
      }
    }
  }
  Chart many = bandwidths();  // too many names for the chart's height, and long ones
  for (int i = 0; i < 60; ++i) many.series.push_back({std::string(200, 'w'), {{1, 1}}});
  many.title = many.subtitle = many.x.title = many.y.title = std::string(500, 'm');
  expect_sound(to_svg(many));
}

TEST(LineCharts, AGapEndsTheLine) {
  const std::string svg =
      to_svg(Chart{.title = "t", .series = {{"s", {{1, 1}, {2, 2}, {3, NAN}, {4, 3}, {5, 4}, {6, NAN}, {7, 1}}}}});
  EXPECT_EQ(occurrences(svg, "<polyline"), 2u);
  EXPECT_EQ(occurrences(svg, "<circle"), 6u);  // five points and the legend
}

TEST(Charts, EscapeText) {
  EXPECT_EQ(escape_xml("a<b> & \"c\" 'd'"), "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;");
  EXPECT_EQ(escape_xml("µs – 20 °C"), "µs – 20 °C");
  EXPECT_EQ(escape_xml("\x01"
                       "a\xff"
                       "b\xc3"
                       "c\xed\xa0\x80\n"),
            "\\x01a\\xFFb\\xC3c\\xED\\xA0\\x80\\n");
  Chart chart = bandwidths();
  chart.title = chart.subtitle = chart.x.title = chart.y.title = chart.series[0].name = "</svg>\"&'\x02\xfe";
  expect_sound(to_svg(chart));
  EXPECT_THAT(to_svg(chart), HasSubstr("&lt;/svg&gt;&quot;&amp;&#39;\\x02\\xFE"));
}

TEST(Charts, RoundTicks) {
  const auto ticks = [](double low, double high, AxisScale scale, AxisNumbers numbers) {
    return axis_ticks(low, high, scale, numbers);
  };
  EXPECT_THAT(ticks(0, 9.3, AxisScale::linear, AxisNumbers::plain), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(ticks(-1, 1, AxisScale::linear, AxisNumbers::plain), ElementsAre(-1, -0.5, 0, 0.5, 1));
  EXPECT_THAT(ticks(8, 1 << 28, AxisScale::logarithmic, AxisNumbers::bytes),
              ElementsAre(8, 128, 2048, 32768, 524288, 8388608, 134217728));
  EXPECT_THAT(
      ticks(3e-6, 0.04, AxisScale::logarithmic, AxisNumbers::seconds),
      ElementsAre(DoubleEq(1e-6), DoubleEq(1e-5), DoubleEq(1e-4), DoubleEq(1e-3), DoubleEq(1e-2), DoubleEq(0.1)));
  EXPECT_THAT(ticks(3, 40, AxisScale::logarithmic, AxisNumbers::plain), ElementsAre(2, 5, 10, 20, 50));
  EXPECT_THAT(ticks(20, 50, AxisScale::logarithmic, AxisNumbers::plain), ElementsAre(20, 25, 30, 35, 40, 45, 50));
  for (const double high : {1e-6, 0.7, 3.0, 12.0, 99.0, 1e5, 7e11}) {
    EXPECT_LE(ticks(0, high, AxisScale::linear, AxisNumbers::plain).size(), 9u) << high;
    EXPECT_LE(ticks(high / 1e7, high, AxisScale::logarithmic, AxisNumbers::plain).size(), 9u) << high;
  }
}

TEST(Charts, NumbersOfAxes) {
  EXPECT_EQ(format_axis_number(0.30000000000000004, AxisNumbers::plain), "0.3");
  EXPECT_EQ(format_axis_number(-0.0, AxisNumbers::plain), "0");
  EXPECT_EQ(format_axis_number(1500, AxisNumbers::plain), "1,500");
  EXPECT_EQ(format_axis_number(1536, AxisNumbers::bytes), "1.5 KiB");
  EXPECT_EQ(format_axis_number(1 << 28, AxisNumbers::bytes), "256 MiB");
  EXPECT_EQ(format_axis_number(2e-5, AxisNumbers::seconds), "20 µs");
  EXPECT_EQ(format_axis_number(1e-3, AxisNumbers::seconds), "1 ms");
  EXPECT_EQ(format_axis_number(0, AxisNumbers::seconds), "0 s");
  EXPECT_EQ(format_axis_number(80, AxisNumbers::percent), "80 %");
}

TEST(Charts, LabelsKeepApart) {
  EXPECT_THAT(spread_labels({50, 100, 52}, 20, 0, 400), ElementsAre(50, 100, 70));
  EXPECT_THAT(spread_labels({395, 398, 400}, 20, 0, 400), ElementsAre(360, 380, 400));
  EXPECT_THAT(spread_labels({10, 10, 10}, 200, 0, 100), ElementsAre(0, 50, 100));
  EXPECT_THAT(spread_labels({}, 20, 0, 400), ElementsAre());
}

/// A part of each bar in turn.
ChartSeries part(const std::string& name, const std::vector<double>& values) {
  ChartSeries series{.name = name};
  for (const double value : values) series.points.push_back({static_cast<double>(series.points.size()), value});
  return series;
}

TEST(StackedBars, ShowEveryPartInOrder) {
  const std::string svg = to_svg(
      Chart{.title = "Time of a step",
            .subtitle = "weak scaling",
            .x = {.title = "ranks"},
            .y = {.title = "share", .numbers = AxisNumbers::percent},
            .series = {part("compute", {97, 90, 70}), part("communication", {0, 5, 20}), part("input", {3, 5, 10})},
            .bars = {"1", "2", "8"}});
  expect_sound(svg);
  for (const char* text : {">compute</text>", ">communication</text>", ">input</text>", ">1</text>", ">2</text>",
                           ">8</text>", ">ranks</text>", ">share</text>", ">70 %</text>", ">100 %</text>"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
  // Eight blocks (one part is nothing on one rank), and their signs in the legend, which are titled as well.
  EXPECT_EQ(occurrences(svg, "</title></rect>"), 8u + 3u);
  EXPECT_THAT(svg, HasSubstr("<title>8: communication, 20 %</title>"));
  EXPECT_EQ(occurrences(svg, "<pattern "), 2u);  // distinct without colour: one plain, two hatched
  // From the top: input, communication, compute.
  const auto height = [&](const std::string& name) {
    const std::size_t end = svg.find(">" + name + "</text>");
    const std::size_t start = svg.rfind("<text", end);
    return numbers_of(svg.substr(start, end - start), "y").at(0);
  };
  EXPECT_LT(height("input"), height("communication"));
  EXPECT_LT(height("communication"), height("compute"));
}

TEST(StackedBars, TakeWhateverComes) {
  const Chart no_parts{.bars = {"a"}};
  expect_sound(to_svg(no_parts));
  EXPECT_THAT(to_svg(no_parts), HasSubstr("no data"));
  const ChartAxis odd{.title = "y", .scale = AxisScale::logarithmic, .from_zero = false};
  expect_sound(to_svg(Chart{.title = "t", .y = odd, .series = {part("p", {5})}, .bars = {"a"}}));
  expect_sound(
      to_svg(Chart{.series = {part("p", {}), part("q", {NAN, -3}), part("r", {0, INFINITY})}, .bars = {"a", "b"}}));
  Chart many{.title = "t", .bars = std::vector<std::string>(300, "a long name")};
  for (int i = 0; i < 40; ++i) many.series.push_back(part("part <&>", std::vector<double>(300, 1e-9 * i)));
  expect_sound(to_svg(many));
}

TEST(MatrixCharts, ShowEachCellThatIsNotEmpty) {
  const std::string svg = to_svg(MatrixChart{.title = "t",
                                             .row_title = "is",
                                             .column_title = "taken for",
                                             .names = {"cat", "<dog> & wolf"},
                                             .values = {3, 1, 0, 1234}});
  expect_sound(svg);
  EXPECT_THAT(svg, HasSubstr("is cat, taken for &lt;dog&gt; &amp; wolf: 1 (25.0 %)"));
  EXPECT_THAT(svg, HasSubstr(": 1,234 (100.0 %)"));
  EXPECT_THAT(svg, Not(HasSubstr("taken for cat: 0")));
}

TEST(MatrixCharts, TakeManyRowsAndNone) {
  expect_sound(to_svg(MatrixChart{.title = "t"}));
  MatrixChart many{.title = "t", .names = std::vector<std::string>(500, "a long name")};
  many.values.assign(500 * 500, 2);
  const std::string svg = to_svg(many);
  expect_sound(svg);
  std::size_t names = 0;
  for (std::size_t at = 0; (at = svg.find(">a long name<", at)) != std::string::npos; ++at) ++names;
  EXPECT_LT(names, 40u);  // no two overlap
}

TEST(Charts, StandBelowEachOther) {
  const Chart bars{.title = "t", .series = {part("p", {1})}, .bars = {"a"}};
  const std::string svg = to_svg(std::vector<Chart>{bandwidths(), bars});
  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_THAT(svg, testing::StartsWith("<svg xmlns="));
  EXPECT_THAT(svg, HasSubstr("viewBox=\"0 0 880 1040\""));
  EXPECT_THAT(svg, HasSubstr("<svg y=\"520\" "));
}

}  // namespace
}  // namespace lockstep::app
