/// \file
/// Dense layers one after another: what "linear" and "mlp" both are.
#pragma once

#include <string>
#include <vector>

#include "model/layers/layer_chain.hpp"

namespace lockstep::model {

class DenseChain final : public LayerChain {
 public:
  /// A layer of each width of `hidden` with options.activation, then the output layer without one; he_normal and zeros
  /// where the options name no initialisers. `name` begins the signature. Throws std::invalid_argument where a width,
  /// the features or the outputs are not positive.
  DenseChain(std::string name, const std::vector<std::int64_t>& hidden, const NetworkOptions& options,
             const SampleShape& shape);
};

}  // namespace lockstep::model
