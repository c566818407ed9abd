/// \file
/// Dense layers one after another: what "linear" and "mlp" both are.
#pragma once

#include <string>
#include <vector>

#include "model/layers/layer_chain.hpp"

namespace lockstep::model {

class DenseChain final : public LayerChain {
 public:
  /// A layer of each width of `hidden` with the options "activation" (relu where it is not set) and "dropout" (0), then
  /// the output layer without; he_normal and zeros where "weight-init" and "bias-init" are not set. `name` begins the
  /// signature.
  DenseChain(std::string name, const Numbers& hidden, const NetworkOptions& options, const SampleShape& shape);
};

}  // namespace lockstep::model
