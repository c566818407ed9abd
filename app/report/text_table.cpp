#include "app/report/text_table.hpp"

#include <algorithm>

#include "io/text/visible_text.hpp"

namespace lockstep::app {
namespace {

std::size_t letters_in(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace

std::string format_table(const std::vector<std::vector<std::string>>& given, const std::set<std::size_t>& right) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& row : given) rows.push_back(io::visible_lines(row));
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], letters_in(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string blanks(widths[i] - letters_in(row[i]), ' ');
      line += (right.contains(i) ? blanks + row[i] : row[i] + blanks) + "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace lockstep::app
