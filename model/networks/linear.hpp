/// \file
/// "linear": one dense layer from features to outputs. With cross-entropy softmax regression, with squared error linear
/// regression.
#pragma once

#include <memory>

#include "model/network.hpp"

namespace lockstep::model {

/// Throws std::invalid_argument where hidden layers are asked for.
std::unique_ptr<Network> make_linear(const NetworkOptions& options, const SampleShape& shape);

}  // namespace lockstep::model
