/// \file
/// GPT-2 cuts a text into words before it makes tokens of them (Radford et al., 2019, and its program `encoder.py`):
///
///     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
///
/// A scanner of four classes of characters does what that expression says. A word begins with the blank before it; of
/// more white space all but the last character is a word of its own. Every byte of the text is in one word.
#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep::io {

/// Bytes of the first word of a text that is not empty. `last`: nothing will follow. 0: more of the text must be known,
/// never where `last`. Bytes that are no UTF-8 are characters other than letters, numbers and white space.
std::size_t byte_pair_word_bytes(std::string_view text, bool last) noexcept;

}  // namespace lockstep::io
