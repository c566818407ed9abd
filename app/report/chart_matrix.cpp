#include "app/report/chart_matrix.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include <fmt/format.h>

#include "app/report/chart_canvas.hpp"
#include "app/report/figures.hpp"

namespace lockstep::app {

namespace {

constexpr double kMin = 12;  ///< minimum distance of two names, in pixels

/// A colour from white (0) to dark blue (1).
std::string shade(double share) {
  const auto between = [share](double white, double dark) { return white + share * (dark - white); };
  return fmt::format("#{:02x}{:02x}{:02x}", static_cast<int>(between(255, 8)), static_cast<int>(between(255, 48)),
                     static_cast<int>(between(255, 107)));
}

}  // namespace

std::string to_svg(const MatrixChart& chart) {
  const std::size_t count = chart.names.size();
  ChartCanvas canvas(
      chart.title, chart.subtitle,
      fmt::format("A matrix of {} rows ({}) and as many columns ({}).", count, chart.row_title, chart.column_title));
  const double side = canvas.bottom() - canvas.top(), left = (canvas.width() - side) / 2;
  const double cell = side / static_cast<double>(std::max<std::size_t>(count, 1));
  const auto interval = static_cast<std::size_t>(std::max(1.0, kMin / cell + 0.999));  // shows every n-th name
  for (std::size_t row = 0; row < count; ++row) {
    const auto values = chart.values.begin() + static_cast<std::ptrdiff_t>(row * count);
    const double sum = std::accumulate(values, values + static_cast<std::ptrdiff_t>(count), 0.0);
    const double y = canvas.top() + static_cast<double>(row) * cell;
    for (std::size_t column = 0; column < count; ++column) {
      const double value = values[static_cast<std::ptrdiff_t>(column)], share = sum > 0 ? value / sum : 0;
      if (value == 0) continue;
      const double x = left + static_cast<double>(column) * cell;
      canvas.shape("rect",
                   fmt::format("x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"", x, y, cell,
                               cell, shade(share)),
                   fmt::format("{} {}, {} {}: {} ({:.1f} %)", chart.row_title, chart.names[row], chart.column_title,
                               chart.names[column], with_commas(static_cast<std::int64_t>(value)), 100 * share));
      const std::string number = fmt::format("{:.0f}", value);
      if (cell >= kMin && text_width(number, 11) < cell) {
        canvas.text(x + cell / 2, y + cell / 2 + 4, number,
                    {.size = 11, .anchor = "middle", .fill = share > 0.5 ? "#ffffff" : "#1f2933"});
      }
    }
    if (row % interval != 0) continue;
    canvas.text(left - 8, y + cell / 2 + 4, fit_text(chart.names[row], 11, left - 60), {.size = 11, .anchor = "end"});
    const double middle = left + (static_cast<double>(row) + 0.5) * cell;
    if (cell >= 60) {
      canvas.text(middle, canvas.bottom() + 16, fit_text(chart.names[row], 11, cell), {.size = 11, .anchor = "middle"});
    } else {  // the bottom only has space for short names
      canvas.text(middle + 4, canvas.bottom() + 42, fit_text(chart.names[row], 11, 38), {.size = 11, .upward = true});
    }
  }
  canvas.shape("rect", fmt::format("x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"none\" "
                                   "stroke=\"#9aa5b1\"",
                                   left, canvas.top(), side, side));
  canvas.text(left + side / 2, canvas.bottom() + 60, chart.column_title, {.anchor = "middle"});
  canvas.text(24, canvas.top() + side / 2, chart.row_title, {.anchor = "middle", .upward = true});
  return canvas.finish();
}

}  // namespace lockstep::app
