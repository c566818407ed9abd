#include "app/info/describe_columns.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/report/figures.hpp"
#include "io/text/visible_text.hpp"

namespace lockstep::app {

namespace {

constexpr std::size_t kMaxColumnsShown = 100, kMaxCategoriesShown = 10;

std::string describe_column(const io::TableColumn& column) {
  if (column.kind == io::TableColumn::Kind::numbers) {
    const std::string name = io::visible_line(column.name);
    return column.filled == 0
               ? name
               : fmt::format("{}, {} filled with {:.6g}", name, counted(column.filled, "missing cell"), column.fill);
  }
  const std::size_t shown = std::min(kMaxCategoriesShown, column.categories.size());
  const auto first = column.categories.begin();
  return fmt::format(
      "{}: {}{}", io::visible_line(column.name),
      fmt::join(io::visible_lines({first, first + static_cast<std::ptrdiff_t>(shown)}), ", "),
      shown < column.categories.size() ? fmt::format(" and {} more", column.categories.size() - shown) : "");
}

}  // namespace

std::string describe_columns(const io::TableSchema& table, std::size_t indent) {
  std::string text;
  const std::size_t shown = std::min(kMaxColumnsShown, table.columns.size());
  for (std::size_t i = 0; i < shown; ++i) {
    text += fmt::format("{:<{}}{}\n", i == 0 ? "  columns" : "", indent, describe_column(table.columns[i]));
  }
  if (shown < table.columns.size()) {
    text += fmt::format("{:<{}}and {} more\n", "", indent, table.columns.size() - shown);
  }
  if (!table.labels.empty()) {
    text += fmt::format("{:<{}}{}\n", table.labels.size() == 1 ? "  label" : "  labels", indent,
                        fmt::join(io::visible_lines(table.labels), ", "));
  }
  return text;
}

}  // namespace lockstep::app
