/// \file
/// Text wrapped to the width of a terminal.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::app {

/// Wraps `text` at blanks so that no line is wider than `columns` characters, if possible. The rest continues in the
/// next line, indented by four more columns. If three or more blanks separate a name and its description, the
/// description continues below itself. Lines of a table, with several such columns, stay unchanged.
std::string wrapped_text(std::string_view text, int columns);

}  // namespace lockstep::app
