#include "app/report/line_fields.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep::app {

std::string full_line(const std::vector<LineField>& fields) {
  std::string line;
  for (const LineField& field : fields) line += (line.empty() ? "" : "  ") + field.text;
  return line;
}

std::string fitted_line(const std::vector<LineField>& fields, int columns, bool coloured) {
  std::vector<LineField> kept = fields;
  const auto lighter = [](const LineField& a, const LineField& b) { return a.weight < b.weight; };
  while (kept.size() > 1 && full_line(kept).size() > static_cast<std::size_t>(std::max(columns, 0))) {
    kept.erase(std::min_element(kept.begin(), kept.end(), lighter));
  }
  if (!coloured) return full_line(kept);
  for (LineField& field : kept) {
    const char* const code = field.style == LineStyle::strong  ? "1"
                             : field.style == LineStyle::good  ? "1;32"
                             : field.style == LineStyle::quiet ? "2"
                                                               : "";
    if (*code != '\0') field.text = fmt::format("\x1b[{}m{}\x1b[0m", code, field.text);
  }
  return full_line(kept);
}

}  // namespace lockstep::app
