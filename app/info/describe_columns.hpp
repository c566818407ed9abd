/// \file
/// The columns of a table as text for people.
#pragma once

#include <cstddef>
#include <string>

#include "io/shards/table_schema.hpp"

namespace lockstep::app {

/// A line for each: "  columns  size", "           colour: blue, red". The names follow `indent` blanks.
std::string describe_columns(const io::TableSchema& table, std::size_t indent);

}  // namespace lockstep::app
