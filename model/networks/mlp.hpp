/// \file
/// "mlp", the multilayer perceptron: hidden layers of given widths with one activation, then a linear output layer.
#pragma once

#include <memory>

#include "model/network.hpp"

namespace lockstep::model {

/// Throws std::invalid_argument without hidden layers: that is "linear".
std::unique_ptr<Network> make_mlp(const NetworkOptions& options, const SampleShape& shape);

}  // namespace lockstep::model
