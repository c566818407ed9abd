/// \file
/// A matrix as a picture: a square for each cell, the darker the more, with its number where there is room.
#pragma once

#include <string>
#include <vector>

namespace lockstep::app {

struct MatrixChart {
  std::string title{};
  std::string subtitle{};  ///< "": none
  std::string row_title{}, column_title{};
  std::vector<std::string> names{};  ///< of the rows, and of the columns
  /// By row. 0 is white; the darkest square is that of the greatest share of its row.
  std::vector<double> values{};
};

/// A whole SVG file, of the size of a Chart.
std::string to_svg(const MatrixChart& chart);

}  // namespace lockstep::app
