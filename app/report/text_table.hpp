/// \file
/// A table of text in columns.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace lockstep::app {

/// A line for each row, its cells two blanks apart, each column as wide as its widest cell. Columns named in `right`
/// end at their right edge, as numbers do.
std::string format_table(const std::vector<std::vector<std::string>>& rows, const std::set<std::size_t>& right = {});

}  // namespace lockstep::app
