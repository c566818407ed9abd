#include "io/text/character_class.hpp"

#include "io/text/utf8.hpp"

namespace lockstep::io {

Character character_at(std::string_view text, std::size_t at, bool last) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[at + i])); };
  const std::uint32_t first = byte(0);
  if (first < 0x80) return {1, character_class(first)};
  const auto bytes = code_point_bytes(text.substr(at));
  if (!bytes && !last) return {};
  switch (bytes.value_or(0)) {
    case 2:
      return {2, character_class((first & 0x1F) << 6 | (byte(1) & 0x3F))};
    case 3:
      return {3, character_class((first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F))};
    case 4:
      return {
          4, character_class((first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F))};
    default:
      return {1, CharacterClass::other};
  }
}

}  // namespace lockstep::io
