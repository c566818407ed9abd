#include "io/text/byte_letters.hpp"

#include <cstddef>

namespace lockstep::io {
namespace {

constexpr bool stands_for_itself(std::uint32_t byte) noexcept {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
}

constexpr std::uint32_t kFirstOther = 0x100;
constexpr std::uint32_t kLetters = kFirstOther + 68;

struct Letters {
  std::array<std::uint16_t, 256> of_byte{};
  std::array<std::int16_t, kLetters> byte_of{};  ///< -1: none
  std::array<std::uint8_t, 256> ordered{};
};

constexpr Letters kTable = [] {
  Letters table;
  table.byte_of.fill(-1);
  std::size_t place = 0;
  std::uint32_t next = kFirstOther;
  for (const bool itself : {true, false}) {
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      if (stands_for_itself(byte) != itself) continue;
      const std::uint32_t letter = itself ? byte : next++;
      table.of_byte[byte] = static_cast<std::uint16_t>(letter);
      table.byte_of[letter] = static_cast<std::int16_t>(byte);
      table.ordered[place++] = static_cast<std::uint8_t>(byte);
    }
  }
  return table;
}();

}  // namespace

std::array<std::uint8_t, 256> bytes_by_letter() noexcept { return kTable.ordered; }

std::string letters_of(std::string_view bytes) {
  std::string letters;
  for (const char byte : bytes) {
    const std::uint32_t letter = kTable.of_byte[static_cast<unsigned char>(byte)];
    if (letter >= 0x80) {  // all letters are below U+0800: two bytes
      letters += static_cast<char>(0xC0 | letter >> 6);
      letters += static_cast<char>(0x80 | (letter & 0x3F));
    } else {
      letters += static_cast<char>(letter);
    }
  }
  return letters;
}

std::optional<std::string> bytes_of_letters(std::string_view letters) {
  std::string bytes;
  for (std::size_t i = 0; i < letters.size(); ++i) {
    std::uint32_t letter = static_cast<unsigned char>(letters[i]);
    if (letter >= 0x80) {
      if ((letter & 0xE0) != 0xC0 || i + 1 == letters.size()) return std::nullopt;
      const std::uint32_t next = static_cast<unsigned char>(letters[++i]);
      if ((next & 0xC0) != 0x80) return std::nullopt;
      letter = (letter & 0x1F) << 6 | (next & 0x3F);
    }
    if (letter >= kLetters || kTable.byte_of[letter] < 0) return std::nullopt;
    bytes += static_cast<char>(kTable.byte_of[letter]);
  }
  return bytes;
}

}  // namespace lockstep::io
