/// \file
/// Escapes foreign text (names of files, classes, columns, datasets) for output: anything that a terminal would
/// interpret becomes visible.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::io {

/// Shows control characters (C0, C1), characters that change the direction of text or have no width, and bytes that are
/// not UTF-8 as escapes such as \x1B, \u202E and \xFF. Newlines and tabs stay: for text of several lines.
std::string visible_text(std::string_view text);

/// As visible_text(), but newlines and tabs become \n and \t: for a name within a line.
std::string visible_line(std::string_view text);
std::vector<std::string> visible_lines(const std::vector<std::string>& texts);

/// Length of `text` in bytes without a last character that is cut off.
std::size_t whole_letters(std::string_view text);

}  // namespace lockstep::io
