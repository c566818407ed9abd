#include "io/text/utf8.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep::io {

std::optional<std::size_t> code_point_bytes(std::string_view text) noexcept {
  const unsigned first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return 1;
  const std::size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4) return 0;  // a continuation byte, or an overlong form
  // The bounds of the second byte exclude overlong forms, surrogates and code points beyond U+10FFFF (RFC 3629).
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < std::min(bytes, text.size()); ++i) {
    const unsigned next = static_cast<unsigned char>(text[i]);
    if (next < (i == 1 ? low : 0x80) || next > (i == 1 ? high : 0xBF)) return 0;
  }
  if (text.size() < bytes) return std::nullopt;
  return bytes;
}

std::optional<std::size_t> first_not_utf8(std::string_view text) noexcept {
  for (std::size_t at = 0; at < text.size();) {
    const auto bytes = code_point_bytes(text.substr(at));
    if (!bytes || *bytes == 0) return at;
    at += *bytes;
  }
  return std::nullopt;
}

std::string readable(std::string_view text) {
  std::string result;
  while (const auto bad = first_not_utf8(text)) {
    result += text.substr(0, *bad);
    result += fmt::format("\\x{:02X}", static_cast<unsigned char>(text[*bad]));
    text.remove_prefix(*bad + 1);
  }
  return result += text;
}

}  // namespace lockstep::io
