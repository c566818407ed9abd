#include "app/report/chart_canvas.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "app/report/figures.hpp"
#include "io/text/visible_text.hpp"

namespace lockstep::app {
namespace {

constexpr double kMaxTicks = 8;
constexpr std::string_view kQuiet = "#52606d";

/// Each colour of a chart, with its replacement on a dark background.
constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kDarkColours{{{"#ffffff", "#14191f"},
                                                                                      {"#1f2933", "#e6eaee"},
                                                                                      {"#52606d", "#a7b1bc"},
                                                                                      {"#e4e7eb", "#29313a"},
                                                                                      {"#cbd2d9", "#3a444f"},
                                                                                      {"#7b8794", "#6d7986"},
                                                                                      {"#616e7c", "#8d99a6"},
                                                                                      {"#0072b2", "#5db3e6"},
                                                                                      {"#d55e00", "#f08a45"},
                                                                                      {"#007a5a", "#3fbf98"},
                                                                                      {"#a3497f", "#d98bb9"},
                                                                                      {"#b07c00", "#dcb043"},
                                                                                      {"#3b4252", "#b4bfd3"}}};

/// The least number of the form 1, 2 or 5 times a power of ten at or above `value` > 0.
double round_up(double value) {
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double digit : {1.0, 2.0, 5.0}) {
    if (value <= digit * power * (1 + 1e-9)) return digit * power;
  }
  return 10 * power;
}

std::vector<double> linear_ticks(double low, double high) {
  const double step = round_up((high - low) / (kMaxTicks - 1));
  const auto first = std::floor(low / step + 1e-9), last = std::ceil(high / step - 1e-9);
  std::vector<double> ticks;
  for (double i = first; i <= last; ++i) ticks.push_back(i * step);
  return ticks;
}

std::vector<double> power_of_two_ticks(double low, double high) {
  const double first = std::ceil(std::log2(low) - 1e-9), last = std::floor(std::log2(high) + 1e-9);
  const double step = std::max(1.0, std::ceil((last - first) / (kMaxTicks - 1)));
  std::vector<double> ticks;
  for (double exponent = first; exponent <= last; exponent += step) ticks.push_back(std::exp2(exponent));
  return ticks;
}

std::vector<double> power_of_ten_ticks(double low, double high) {
  const double first = std::floor(std::log10(low) + 1e-9), last = std::ceil(std::log10(high) - 1e-9);
  std::vector<double> ticks;
  if (high < 4 * low) {
    ticks = linear_ticks(low, high);
    if (ticks.front() < low / 2) ticks.erase(ticks.begin());
    return ticks;
  }
  if (last - first <= 2) {  // ticks at 1, 2, 5, 10, 20, …
    for (double exponent = first; exponent <= last; ++exponent) {
      for (const double digit : {1.0, 2.0, 5.0}) ticks.push_back(digit * std::pow(10, exponent));
    }
    while (ticks.size() > 2 && ticks[1] <= low * (1 + 1e-9)) ticks.erase(ticks.begin());
    while (ticks.size() > 2 && ticks[ticks.size() - 2] >= high * (1 - 1e-9)) ticks.pop_back();
    return ticks;
  }
  const double step = std::ceil((last - first) / (kMaxTicks - 1));
  for (double exponent = first; exponent < last + step; exponent += step) ticks.push_back(std::pow(10, exponent));
  return ticks;
}

}  // namespace

std::string escape_xml(const std::string& text) {
  constexpr std::string_view special = "&<>\"'";
  constexpr std::array<std::string_view, 5> entities{"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
  std::string result;
  for (const char letter : io::visible_line(text)) {  // XML does not allow control characters
    const std::size_t entity = special.find(letter);
    result += entity == std::string_view::npos ? std::string_view(&letter, 1) : entities[entity];
  }
  return result;
}

std::string format_axis_number(double value, AxisNumbers numbers) {
  const auto plain = [](double number) {
    const double size = std::abs(number);
    if (size >= 1000 && size < 1e9) return with_commas(std::llround(number));
    return fmt::format("{:.4g}", number == 0 ? 0.0 : number);  // avoids -0
  };
  const double size = std::abs(value);
  switch (numbers) {
    case AxisNumbers::bytes: {
      constexpr std::array<const char*, 7> units{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
      std::size_t unit = 0;
      for (; std::abs(value) >= 1024 && unit + 1 < units.size(); ++unit) value /= 1024;
      return plain(value) + " " + units[unit];
    }
    case AxisNumbers::seconds:
      if (size == 0 || size >= 0.9999) return plain(value) + " s";
      if (size >= 0.9999e-3) return plain(1e3 * value) + " ms";
      if (size >= 0.9999e-6) return plain(1e6 * value) + " µs";
      return plain(1e9 * value) + " ns";
    case AxisNumbers::percent:
      return plain(value) + " %";
    case AxisNumbers::plain:
      break;
  }
  return plain(value);
}

std::vector<double> axis_ticks(double low, double high, AxisScale scale, AxisNumbers numbers) {
  if (scale == AxisScale::linear) return linear_ticks(low, high);
  return numbers == AxisNumbers::bytes ? power_of_two_ticks(low, high) : power_of_ten_ticks(low, high);
}

// Axes ----------------------------------------------------------------------------------------------------------------

AxisMapping::AxisMapping(const ChartAxis& axis, const std::vector<double>& values, double from, double to)
    : scale_(axis.scale), from_(from), to_(to) {
  std::vector<double> shown;
  for (const auto& numbers : {values, axis.ticks}) {
    std::copy_if(numbers.begin(), numbers.end(), std::back_inserter(shown), [&](double v) { return shows(v); });
  }
  const bool logarithmic = scale_ == AxisScale::logarithmic;
  if (shown.empty()) shown = logarithmic ? std::vector{1.0, 10.0} : std::vector{0.0, 1.0};
  if (!logarithmic && axis.from_zero) shown.push_back(0);
  low_ = *std::min_element(shown.begin(), shown.end());
  high_ = *std::max_element(shown.begin(), shown.end());
  if (logarithmic) {
    if (high_ <= low_ * (1 + 1e-9)) {
      low_ /= 2;
      high_ *= 2;
    }
  } else if (high_ - low_ <= 1e-9 * std::max(std::abs(low_), std::abs(high_)) || high_ - low_ < 1e-290) {
    const double margin = std::max(0.1 * std::abs(high_), 1e-280);
    const bool all_zero = low_ == 0 && high_ == 0;
    low_ -= all_zero ? 0 : margin;
    high_ += all_zero ? 1 : margin;
  }
  ticks_ = axis.ticks;
  if (ticks_.empty()) ticks_ = axis_ticks(low_, high_, scale_, axis.numbers);
  ticks_.erase(std::remove_if(ticks_.begin(), ticks_.end(), [&](double v) { return !shows(v); }), ticks_.end());
  if (!ticks_.empty()) {
    low_ = std::min(low_, ticks_.front());
    high_ = std::max(high_, ticks_.back());
  }
}

bool AxisMapping::shows(double value) const {
  constexpr double least = 1e-250, most = 1e250;
  return std::isfinite(value) && std::abs(value) <= most && (scale_ == AxisScale::linear || value >= least);
}

double AxisMapping::fraction(double value) const {
  if (scale_ == AxisScale::linear) return (value - low_) / (high_ - low_);
  return std::log(value / low_) / std::log(high_ / low_);
}

std::string AxisMapping::described() const {
  return fmt::format("{} {} {} {} {}", low_, high_, from_, to_, scale_ == AxisScale::linear ? "linear" : "logarithmic");
}

double AxisMapping::at(double value) const { return from_ + std::clamp(fraction(value), 0.0, 1.0) * (to_ - from_); }

// Labels --------------------------------------------------------------------------------------------------------------

double text_width(const std::string& text, double size) {
  const auto characters =
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
  return 0.62 * size * static_cast<double>(characters);
}

std::string fit_text(const std::string& text, double size, double width) {
  if (text_width(text, size) <= width) return text;
  std::string shorter = text;
  while (!shorter.empty() && text_width(shorter, size) + size > width) {
    while (shorter.size() > 1 && (static_cast<unsigned char>(shorter.back()) & 0xc0) == 0x80) shorter.pop_back();
    shorter.pop_back();
  }
  return shorter + "…";
}

std::vector<double> spread_labels(const std::vector<double>& wanted, double distance, double top, double bottom) {
  std::vector<std::size_t> order(wanted.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return wanted[a] < wanted[b]; });
  if (wanted.size() > 1) distance = std::min(distance, (bottom - top) / static_cast<double>(wanted.size() - 1));
  std::vector<double> places(wanted.size());
  double least = top;
  for (const std::size_t i : order) {
    places[i] = std::max(wanted[i], least);
    least = places[i] + distance;
  }
  double most = bottom;
  for (auto i = order.rbegin(); i != order.rend(); ++i) {
    places[*i] = std::min(places[*i], most);
    most = places[*i] - distance;
  }
  return places;
}

// Drawing -------------------------------------------------------------------------------------------------------------

std::string dark_colours() {
  std::string rules;
  for (const auto& [light, dark] : kDarkColours) {
    rules += fmt::format("svg.chart [fill=\"{0}\"]{{fill:{1}}}svg.chart [stroke=\"{0}\"]{{stroke:{1}}}\n", light, dark);
  }
  return rules;
}

ChartCanvas::ChartCanvas(const std::string& title, const std::string& subtitle, const std::string& description,
                         const ChartFrame& frame)
    : frame_(frame) {
  text_ = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "class=\"chart\" role=\"img\" font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n"
      "<title>{2}</title>\n<desc>{3}</desc>\n"
      "<rect x=\"0\" y=\"0\" width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"#ffffff\"/>\n",
      frame.width, frame.height, escape_xml(title), escape_xml(description));
  if (!frame.titled) return;
  text(24, 32, fit_text(title, 18, frame.width - 48), {.size = 18, .bold = true});
  if (!subtitle.empty()) text(24, 53, fit_text(subtitle, 13, frame.width - 48), {.fill = kQuiet});
}

void ChartCanvas::shape(std::string_view tag, std::string_view attributes, const std::string& tooltip) {
  text_ += fmt::format("<{} {}", tag, attributes);
  text_ += tooltip.empty() ? "/>\n" : fmt::format("><title>{}</title></{}>\n", escape_xml(tooltip), tag);
}

void ChartCanvas::text(double x, double y, const std::string& words, const TextStyle& style) {
  text_ += fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{:.0f}\" text-anchor=\"{}\" fill=\"{}\"{}{}{}>{}</text>\n", x, y,
      style.size, style.anchor, style.fill, style.bold ? " font-weight=\"bold\"" : "",
      style.halo ? " stroke=\"#ffffff\" stroke-width=\"3\" paint-order=\"stroke\"" : "",
      style.upward ? fmt::format(" transform=\"rotate(-90 {:.1f} {:.1f})\"", x, y) : "", escape_xml(words));
}

void ChartCanvas::line(double x1, double y1, double x2, double y2, std::string_view style) {
  shape("line", fmt::format("x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}", x1, y1, x2, y2, style));
}

void ChartCanvas::y_axis(const ChartAxis& axis, const AxisMapping& mapping, double left, double right) {
  for (const double tick : mapping.ticks()) {
    const double y = mapping.at(tick);
    line(left, y, right, y, "stroke=\"#e4e7eb\"");
    text(left - 8, y + 4, format_axis_number(tick, axis.numbers), {.size = 12, .anchor = "end", .fill = kQuiet});
  }
  if (frame_.narrow()) return;
  text(22, (top() + bottom()) / 2, fit_text(axis.title, 13, bottom() - top()), {.anchor = "middle", .upward = true});
}

void ChartCanvas::x_tick(double x, const std::string& label) {
  line(x, bottom(), x, bottom() + 5, "stroke=\"#7b8794\"");
  if (!label.empty()) text(x, bottom() + 20, label, {.size = 12, .anchor = "middle", .fill = kQuiet});
}

void ChartCanvas::x_axis(const std::string& title, double left, double right) {
  line(left, bottom(), right, bottom(), "stroke=\"#7b8794\"");
  text((left + right) / 2, bottom() + 44, fit_text(title, 13, right - left), {.anchor = "middle"});
}

void ChartCanvas::no_data(double left, double right) {
  text((left + right) / 2, (top() + bottom()) / 2, "no data", {.size = 16, .anchor = "middle", .fill = kQuiet});
}

std::string ChartCanvas::finish() { return std::move(text_) + "</svg>\n"; }

}  // namespace lockstep::app
