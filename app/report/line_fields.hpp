/// \file
/// A line of figures that leaves out fields to fit a width.
#pragma once

#include <string>
#include <vector>

namespace lockstep::app {

enum class LineStyle { plain, strong, good, quiet };

struct LineField {
  std::string text;
  int weight = 0;  ///< the field with the lowest weight is dropped first, the highest never
  LineStyle style = LineStyle::plain;
};

/// Returns all fields, separated by two blanks.
std::string full_line(const std::vector<LineField>& fields);
/// Returns as many fields as fit into `columns`, in their order; with `coloured`, uses ECMA-48 colours.
std::string fitted_line(const std::vector<LineField>& fields, int columns, bool coloured);

}  // namespace lockstep::app
