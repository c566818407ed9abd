/// \file
/// Text of others (names of files, classes, columns, data sets) that people see: what a terminal would obey becomes
/// visible.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::io {

/// Letters stay. Control characters (C0, C1), signs that turn the direction of text or have no width, and bytes that
/// are no UTF-8 are shown as \x1B, \u202E, \xFF. Ends of lines and tabs stay: for text that has lines of its own.
std::string visible_text(std::string_view text);

/// The same, with ends of lines and tabs as \n and \t: for a name within a line.
std::string visible_line(std::string_view text);
std::vector<std::string> visible_lines(const std::vector<std::string>& texts);

/// Bytes of `text` that are whole letters, or no letters at all: less than all where its last letter is cut off.
std::size_t whole_letters(std::string_view text);

}  // namespace lockstep::io
