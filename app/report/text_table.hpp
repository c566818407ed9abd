/// \file
/// A table of text in columns.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace lockstep::app {

/// A line for each row, its cells separated by two blanks, each column as wide as its widest cell. Columns listed in
/// `right` are right-aligned, like numbers.
std::string format_table(const std::vector<std::vector<std::string>>& rows, const std::set<std::size_t>& right = {});

}  // namespace lockstep::app
