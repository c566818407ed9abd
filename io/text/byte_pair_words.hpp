/// \file
/// GPT-2 cuts a text into words before it makes tokens of them (Radford et al., 2019, and its program `encoder.py`):
///
///     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
///
/// This scanner of four classes of characters matches that expression. A word includes the blank before it. In longer
/// white space, all characters except the last form a word of their own. Every byte of the text belongs to one word.
#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep::io {

/// Length in bytes of the first word of a non-empty text. `last`: no text follows. Returns 0 if it needs more of the
/// text, never with `last`. Bytes that are not UTF-8 count as characters other than letters, numbers and white space.
std::size_t byte_pair_word_bytes(std::string_view text, bool last) noexcept;

}  // namespace lockstep::io
