#include "io/text/visible_text.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include <fmt/format.h>

#include "io/text/utf8.hpp"

namespace lockstep::io {
namespace {

struct Range {
  std::uint32_t first, last;
};

/// Unicode's control characters, and characters that are invisible or change how the text around them is shown. The
/// joiners U+200C and U+200D are not in the list, because some scripts need them.
constexpr std::array<Range, 12> kHidden{{{0x00, 0x1F},
                                         {0x7F, 0x9F},
                                         {0x061C, 0x061C},
                                         {0x180E, 0x180E},
                                         {0x200B, 0x200B},
                                         {0x200E, 0x200F},
                                         {0x2028, 0x202E},
                                         {0x2060, 0x206F},
                                         {0xFEFF, 0xFEFF},
                                         {0xFFF9, 0xFFFB},
                                         {0xFFFE, 0xFFFF},
                                         {0xE0000, 0xE007F}}};

/// Code point of a well-formed sequence.
std::uint32_t code_point(std::string_view bytes) {
  const auto first = static_cast<unsigned char>(bytes[0]);
  if (bytes.size() == 1) return first;
  std::uint32_t value = first & (0x7Fu >> bytes.size());
  for (const char next : bytes.substr(1)) value = value << 6 | (static_cast<unsigned char>(next) & 0x3Fu);
  return value;
}

std::string escaped(std::uint32_t point) {
  if (point == '\n') return "\\n";
  if (point == '\t') return "\\t";
  if (point == '\r') return "\\r";
  if (point < 0x80) return fmt::format("\\x{:02X}", point);
  return point <= 0xFFFF ? fmt::format("\\u{:04X}", point) : fmt::format("\\U{:08X}", point);
}

std::string visible(std::string_view text, std::string_view stays) {
  const auto is_plain = [](char c) { return c >= 0x20 && c < 0x7F; };
  std::string shown;
  while (!text.empty()) {
    const auto plain = static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), is_plain) - text.begin());
    shown += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
    const std::size_t bytes = code_point_bytes(text).value_or(0);
    if (bytes == 0) {
      shown += fmt::format("\\x{:02X}", static_cast<unsigned char>(text[0]));
    } else {
      const std::uint32_t point = code_point(text.substr(0, bytes));
      const bool hidden =
          std::ranges::any_of(kHidden, [&](const Range& range) { return range.first <= point && point <= range.last; });
      const bool kept = !hidden || (bytes == 1 && stays.find(text[0]) != std::string_view::npos);
      shown += kept ? std::string(text.substr(0, bytes)) : escaped(point);
    }
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return shown;
}

}  // namespace

std::string visible_text(std::string_view text) { return visible(text, "\n\t"); }

std::string visible_line(std::string_view text) { return visible(text, ""); }

std::size_t whole_letters(std::string_view text) {
  for (std::size_t cut = std::min<std::size_t>(3, text.size()); cut > 0; --cut) {
    if (!code_point_bytes(text.substr(text.size() - cut))) return text.size() - cut;
  }
  return text.size();
}

std::vector<std::string> visible_lines(const std::vector<std::string>& texts) {
  std::vector<std::string> shown;
  for (const std::string& text : texts) shown.push_back(visible_line(text));
  return shown;
}

}  // namespace lockstep::io
