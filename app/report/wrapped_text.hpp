/// \file
/// Text wrapped to the width of a terminal.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::app {

/// Wraps `text` so that no line is wider than `columns` letters if blanks allow it: the rest continues in the next
/// line, indented by four more columns. A description three blanks or more behind its name continues below itself;
/// lines of a table, with several such columns, stay unchanged.
std::string wrapped_text(std::string_view text, int columns);

}  // namespace lockstep::app
