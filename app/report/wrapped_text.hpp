/// \file
/// Lines that fit a terminal.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::app {

/// `text` with no line wider than `columns` letters where blanks allow it: what does not fit goes on in the next line,
/// four columns further in. What stands three blanks or more behind its name goes on below itself; lines of a table,
/// which have several such columns, stay as they are.
std::string wrapped_text(std::string_view text, int columns);

}  // namespace lockstep::app
