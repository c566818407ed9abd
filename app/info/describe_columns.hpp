/// \file
/// Describes the columns of a table for people.
#pragma once

#include <cstddef>
#include <string>

#include "io/shards/table_schema.hpp"

namespace lockstep::app {

/// Returns a line for each column: "  columns  size", "           colour: blue, red". `indent` blanks precede the
/// names.
std::string describe_columns(const io::TableSchema& table, std::size_t indent);

}  // namespace lockstep::app
