/// \file
/// A line of figures that says less where there is less room.
#pragma once

#include <string>
#include <vector>

namespace lockstep::app {

enum class LineStyle { plain, strong, good, quiet };

struct LineField {
  std::string text;
  int weight = 0;  ///< the lightest is left out first; the heaviest of a line never
  LineStyle style = LineStyle::plain;
};

/// Two blanks apart, all of them.
std::string full_line(const std::vector<LineField>& fields);
/// As many as fit into `columns`, in their order; coloured where that is asked for, by ECMA-48.
std::string fitted_line(const std::vector<LineField>& fields, int columns, bool coloured);

}  // namespace lockstep::app
