/// \file
/// Dense layers one after another: the base of "linear" and "mlp".
#pragma once

#include <string>
#include <vector>

#include "model/layers/layer_chain.hpp"

namespace lockstep::model {

class DenseChain final : public LayerChain {
 public:
  /// One layer for each width of `hidden` with the options "activation" (default relu) and "dropout" (default 0), then
  /// the output layer without either. Defaults of "weight-init" and "bias-init" are he_normal and zeros. `name` begins
  /// the signature.
  DenseChain(std::string name, const Numbers& hidden, const NetworkOptions& options, const SampleShape& shape);
};

}  // namespace lockstep::model
