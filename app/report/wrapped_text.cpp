#include "app/report/wrapped_text.hpp"

#include <algorithm>

namespace lockstep::app {

namespace {

std::size_t letters_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

constexpr std::string_view kGap = "   ";

std::string wrapped_line(std::string_view line, std::size_t columns) {
  const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
  if (letters_of(line) <= columns) return std::string(line);
  const std::size_t gap = line.find(kGap, indent);
  const std::size_t value = gap == std::string_view::npos ? gap : line.find_first_not_of(' ', gap);
  if (value != std::string_view::npos && line.find(kGap, value) != std::string_view::npos) return std::string(line);
  const std::size_t inwards = value == std::string_view::npos ? indent + 4 : letters_of(line.substr(0, value));
  const std::string further(std::min(inwards, columns / 2), ' ');
  std::string text, current(line.substr(0, indent));
  bool has_word = false;
  for (std::size_t at = indent; at < line.size();) {
    const std::size_t blanks = line.find_first_not_of(' ', at) - at, begin = at + blanks;
    const std::size_t end = std::min(line.find(' ', begin), line.size());
    const std::string_view word = line.substr(begin, end - begin);
    if (has_word && letters_of(current) + blanks + letters_of(word) > columns) {
      text += current + "\n";
      current = further;
    } else {
      current.append(blanks, ' ');
    }
    current += word;
    has_word = true;
    at = std::min(line.find_first_not_of(' ', end), line.size()) == line.size() ? line.size() : end;
  }
  return text + current;
}

}  // namespace

std::string wrapped_text(std::string_view text, int columns) {
  std::string all;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    all += wrapped_line(text.substr(0, end), static_cast<std::size_t>(std::max(columns, 1)));
    if (end == text.size()) break;
    all += '\n';
    text.remove_prefix(end + 1);
  }
  return all;
}

}  // namespace lockstep::app
