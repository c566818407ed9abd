/// \file
/// Series of different lengths: the steps of a sample behind its length are padding.
#pragma once

#include <cstdint>
#include <vector>

#include "io/datasets/dataset.hpp"
#include "model/network.hpp"

namespace lockstep::app {

/// An input that is a series, and the number of a sample that holds its length.
struct SeriesPadding {
  std::int64_t first = 0;    ///< index of the input's first number in a sample
  std::int64_t steps = 0;    ///< steps of the input, with padding
  std::int64_t lengths = 0;  ///< index of the number that holds the real steps
};

/// Returns the inputs that reach layers with `lengths:`. An input that reaches layers with different lengths is left
/// out.
std::vector<SeriesPadding> padded_inputs(const model::Network& network, const io::DatasetInfo& info);

}  // namespace lockstep::app
