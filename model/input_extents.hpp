/// \file
/// Meaning of the extents of a network's inputs: the network's declaration decides, not the shape in the file.
#pragma once

#include <cstdint>
#include <vector>

#include "model/network.hpp"

namespace lockstep::model {

/// Returns the extents of each input as the network reads them, channels last: [features], a series [length, channels],
/// an image [height, width, channels], a volume [depth, height, width, channels]. No extents: the samples do not fit
/// the declaration, and make_network() says why.
std::vector<std::vector<std::int64_t>> input_extents(const NetworkOptions& options, const SampleShape& shape);

}  // namespace lockstep::model
