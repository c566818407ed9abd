/// \file
/// GPT-2's files write each byte as a letter, so that every token is printable text. Bytes 33 to 126, 161 to 172 and
/// 174 to 255 stand for themselves (as code points); the other 68 become U+0100, U+0101 ... in their order. A blank is
/// Ġ.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::io {

/// Each byte once, in the order of its letters: bytes that stand for themselves come first. Tokens 0 to 255 of GPT-2.
std::array<std::uint8_t, 256> bytes_by_letter() noexcept;

/// The letters of `bytes`, as UTF-8.
std::string letters_of(std::string_view bytes);
/// The bytes of `letters`; nullopt if a character stands for no byte.
std::optional<std::string> bytes_of_letters(std::string_view letters);

}  // namespace lockstep::io
