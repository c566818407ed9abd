/// \file
/// A matrix as a picture: a square for each cell, darker for larger values, with its number if there is space.
#pragma once

#include <string>
#include <vector>

namespace lockstep::app {

struct MatrixChart {
  std::string title{};
  std::string subtitle{};  ///< "": none
  std::string row_title{}, column_title{};
  std::vector<std::string> names{};  ///< names of the rows, and of the columns
  /// By row. 0 is white; the cell with the greatest share of its row is darkest.
  std::vector<double> values{};
};

/// A complete SVG file, of the size of a Chart.
std::string to_svg(const MatrixChart& chart);

}  // namespace lockstep::app
