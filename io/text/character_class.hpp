/// \file
/// The classes of characters in GPT-2's pattern: letter (\p{L}), number (\p{N}), white space (\s), or other, as in
/// Unicode 16.0.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep::io {

enum class CharacterClass : std::uint8_t { other, letter, number, space };

/// Index into kCharacterClasses for each block of 256 code points below U+40000.
extern const std::array<std::uint8_t, 1024> kCharacterBlocks;
/// Two bits per code point, the lowest first; eight 64-bit words per block.
extern const std::array<std::uint64_t, 1064> kCharacterClasses;

inline CharacterClass character_class(std::uint32_t code_point) noexcept {
  if (code_point >= 0x40000) return CharacterClass::other;
  const std::size_t word = std::size_t{kCharacterBlocks[code_point >> 8]} * 8 + (code_point >> 5 & 7);
  return static_cast<CharacterClass>(kCharacterClasses[word] >> 2 * (code_point & 31) & 3);
}

/// A character of a text.
struct Character {
  std::size_t bytes = 0;  ///< 0: cut off; needs more of the text
  CharacterClass kind = CharacterClass::other;
};

/// The character at `at` < text.size(). A byte that is not UTF-8 is a character of class other. `last`: no text
/// follows; the bytes of a cut-off character are then such bytes, too.
Character character_at(std::string_view text, std::size_t at, bool last) noexcept;

}  // namespace lockstep::io
