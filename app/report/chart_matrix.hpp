/// \file
/// A matrix as a picture: one square for each cell, darker for larger values, with its number if there is space.
#pragma once

#include <string>
#include <vector>

namespace lockstep::app {

struct MatrixChart {
  std::string title{};
  std::string subtitle{};  ///< "": none
  std::string row_title{}, column_title{};
  std::vector<std::string> names{};  ///< names of both rows and columns
  /// Values by row. 0 is white; the cell with the greatest share of its row is the darkest.
  std::vector<double> values{};
};

/// Returns a complete SVG file of the size of a Chart.
std::string to_svg(const MatrixChart& chart);

}  // namespace lockstep::app
