/// \file
/// A line of figures that drops fields to fit a width.
#pragma once

#include <string>
#include <vector>

namespace lockstep::app {

enum class LineStyle { plain, strong, good, quiet };

struct LineField {
  std::string text;
  int weight = 0;  ///< the lightest field is dropped first, the heaviest never
  LineStyle style = LineStyle::plain;
};

/// All fields, separated by two blanks.
std::string full_line(const std::vector<LineField>& fields);
/// As many fields as fit into `columns`, in their order; with `coloured` in ECMA-48 colours.
std::string fitted_line(const std::vector<LineField>& fields, int columns, bool coloured);

}  // namespace lockstep::app
