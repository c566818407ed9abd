/// \file
/// A table of text in columns.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace lockstep::app {

/// Formats a line for each row. Two blanks separate the cells, and a column is as wide as its widest cell. Columns in
/// `right` are right-aligned, like numbers.
std::string format_table(const std::vector<std::vector<std::string>>& rows, const std::set<std::size_t>& right = {});

}  // namespace lockstep::app
